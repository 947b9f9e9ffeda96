"""The demo's course: one act after another, each waiting for what the topics say."""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal

import anyio
import httpx

from infra.kafka.publisher import RawProducer, raw_producer
from infra.local.data import datasets
from infra.redis.client import connect
from infra.redis.keys import Keys
from infra.redis.search import RedisArticleIndex
from topics.catalogue import ANSWERS, OUTCOMES, QUERIES, REQUESTS, TRIAGE
from topics.errors import ConfigError
from topics.events import ArticlePublished, QueryAsked, TicketOpened
from topics.records import OutboundRecord
from workers import dead_letters
from workers.client import Client, open_client
from workers.demo.approver import Approver
from workers.demo.crew import Crew, crew
from workers.demo.end_states import same_changes
from workers.demo.host import Host, hosted
from workers.demo.report import Report
from workers.demo.witness import Witness
from workers.operations import Operations

TICKETS: Final = 240
QUESTIONS: Final = 24
TASKS: Final = 24
POISONED: Final = 3
TICKET_TENANTS: Final = ("acme", "globex")
ACT_WITHIN_S: Final = 180.0

Say = Callable[[str], None]


@dataclass(slots=True)
class Stage:
    """Everybody and everything on the demo's stage."""

    host: Host
    client: Client
    witness: Witness
    approver: Approver
    crew: Crew
    control: httpx.AsyncClient
    index: RedisArticleIndex
    producer: RawProducer
    operations: Operations
    say: Say
    report: Report = field(default_factory=Report)
    questions: dict[str, str] = field(default_factory=dict[str, str])
    tasks: dict[str, datasets.RetailTask] = field(default_factory=dict[str, datasets.RetailTask])


async def play(data_dir: Path | None, *, broker: Literal["tansu", "apache-kafka"], say: Say) -> Report:
    """Run the demo from start to end.

    Raises:
        ConfigError: The stack cannot start.
        TimedOutError: An act did not come to its end.
    """
    began_s = time.monotonic()
    with TemporaryDirectory(prefix="sluice-demo-") as folder:
        async with _stage(_empty(data_dir or Path(folder)), broker, say) as stage:
            for number, act in enumerate(ACTS, start=1):
                say(f"[bold]{number}/{len(ACTS)}[/bold] {(act.__doc__ or '').strip()}")
                await act(stage)
            await _account(stage)
            stage.report.seconds = round(time.monotonic() - began_s, 1)
            return stage.report


def _empty(folder: Path) -> Path:
    """The demo's ids are always the same, so it must start from nothing: what is known already is not done again."""
    if folder.is_dir() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty, and the demo starts from nothing: name another folder")
    return folder


@asynccontextmanager
async def _stage(data_dir: Path, broker: Literal["tansu", "apache-kafka"], say: Say) -> AsyncGenerator[Stage]:
    say(f"Starting a broker ({broker}), Redis, a model server and a back office; data and logs in {data_dir}")
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(hosted(data_dir, broker=broker))
        client = await stack.enter_async_context(open_client(host.settings, source="sluice-demo"))
        events = await stack.enter_async_context(client.watch([TRIAGE, ANSWERS, REQUESTS, OUTCOMES]))
        witness = Witness()
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        tasks.start_soon(witness.watch, events)
        members = await stack.enter_async_context(crew(data_dir))
        redis = connect(host.settings.redis_url, timeout_s=10.0, max_connections=8)
        stack.push_async_callback(redis.aclose)
        producer = await stack.enter_async_context(raw_producer(host.settings.kafka()))
        stage = Stage(
            host=host,
            client=client,
            witness=witness,
            approver=Approver(client),
            crew=members,
            control=await stack.enter_async_context(httpx.AsyncClient(timeout=20.0, trust_env=False)),
            index=RedisArticleIndex(redis, Keys(host.settings.redis_prefix)),
            producer=producer,
            operations=Operations(host.settings, operator="demo-operator"),
            say=say,
        )
        stage.report.broker = host.stack.endpoints.broker
        for name in ("worker-1", "worker-2"):
            await members.start(name)
        yield stage


async def _index_articles(stage: Stage) -> None:
    """Help articles of two tenants are split, embedded and indexed; tickets arrive at the same time."""
    for article in datasets.articles():
        payload = ArticlePublished(article_id=article.article_id, title=article.title, body=article.text)
        await stage.client.publish(payload, tenant=article.tenant, event_id=f"article-{article.article_id}")
    for number, ticket in enumerate(datasets.tickets()[:TICKETS]):
        payload = TicketOpened(ticket_id=ticket.ticket_id, body=ticket.text)
        await stage.client.publish(payload, tenant=TICKET_TENANTS[number % 2], event_id=f"ticket-{ticket.ticket_id}")
    await _until(stage, lambda: len(stage.witness.triaged) >= TICKETS, "triage of the tickets")
    stage.report.tickets_triaged = len(stage.witness.triaged)
    stage.say(f"    {stage.report.tickets_triaged} tickets triaged")
    wanted = len(datasets.articles())
    with anyio.fail_after(ACT_WITHIN_S):
        while (indexed := await stage.index.count()) < wanted:
            stage.say(f"    {indexed} of {wanted} articles indexed")
            await anyio.sleep(3)
    stage.report.articles_indexed = indexed


async def _ask_questions(stage: Stage) -> None:
    """Customers ask; cited answers stream back, and a second question goes on with its thread."""
    cited = [question for question in datasets.questions() if question.article_ids][:QUESTIONS]
    for number, question in enumerate(cited):
        query_id = f"question-{question.question_id}"
        stage.questions[query_id] = question.tenant
        query = QueryAsked(thread_id=f"chat-{number}", text=question.text)
        await stage.client.publish(query, tenant=question.tenant, event_id=query_id)
    for number, question in enumerate(cited[:3]):
        query_id = f"question-again-{number}"
        stage.questions[query_id] = question.tenant
        query = QueryAsked(thread_id=f"chat-{number}", text="What did I ask you before?")
        await stage.client.publish(query, tenant=question.tenant, event_id=query_id)
    await _until(stage, lambda: all(stage.witness.streams[one].ended for one in stage.questions), "the answers")
    answered = [stage.witness.streams[one].completed for one in stage.questions]
    stage.report.answers_cited = sum(1 for one in answered if one and one.citations)
    example = next((one for one in answered if one and one.citations), None)
    if example:
        stage.say(f"    e.g. {example.text[:160]!r} from {example.citations[0].title!r}")


async def _run_tasks(stage: Stage) -> None:
    """Retail orders change after a person says yes; a worker is killed with SIGKILL in the middle."""
    await stage.control.post(f"{_control(stage)}/pace", json={"first_token_ms": 60, "tokens_per_s": 0})
    chosen = [task for task in datasets.retail_tasks() if any(action.mutates for action in task.actions)][:TASKS]
    for task in chosen:
        query_id = f"task-{task.task_id}"
        stage.tasks[query_id] = task
        query = QueryAsked(thread_id=task.task_id, text=task.instruction, user_id=task.user_id)
        await stage.client.publish(query, tenant=f"shop-{task.task_id}", event_id=query_id)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_keep_deciding, stage)
        await _until(stage, lambda: len(stage.witness.executed) >= TASKS // 3, "the first changes")
        pid = stage.crew.pid_of("worker-1")
        await stage.crew.kill("worker-1")
        stage.report.killed_workers += 1
        stage.say(f"    worker-1 (pid {pid}) killed with {_open_tasks(stage)} tasks unfinished; worker-3 joins")
        await stage.crew.start("worker-3")
        await _until(stage, lambda: _open_tasks(stage) == 0, "the end of every task")
        tasks.cancel_scope.cancel()


async def _keep_deciding(stage: Stage) -> None:
    while True:
        await stage.approver.decide_new(stage.witness)
        await anyio.sleep(0.05)


def _open_tasks(stage: Stage) -> int:
    return sum(1 for query_id in stage.tasks if not stage.witness.streams[query_id].ended)


async def _decide_again(stage: Stage) -> None:
    """A duplicate and a late decision come in; both are answered by name, and nothing runs."""
    executed = next(iter(stage.witness.executed))
    tenant, request = stage.witness.requests[executed]
    standing = stage.approver.sent[f"{executed}-1"]
    twice = await stage.approver.send(tenant, request, standing.decision, suffix="again", arguments=standing.arguments)
    late = await stage.approver.send(tenant, request, "reject", suffix="late")
    await _until(stage, lambda: {twice, late} <= set(stage.witness.refused), "the outcomes")
    codes = {stage.witness.refused[twice].code, stage.witness.refused[late].code}
    stage.say(f"    refused as {' and '.join(sorted(codes))}")


async def _poison(stage: Stage) -> None:
    """A topic is poisoned and a model misbehaves: dead letters, then the fault is fixed and they are replayed."""
    garbage = [b"\xff\xfe\x00 no event", b"", b'{"half":']
    for number, value in enumerate(garbage):
        headers = (("ce_type", b"query.asked"), ("ce_tenant", b"acme"), ("x-number", str(number).encode()), ("x-null", b"\x00\xff"))
        await stage.producer.write(
            OutboundRecord(stage.client.catalogue.name(QUERIES), f"acme/poison-{number}".encode(), value, headers)
        )
    await stage.control.post(
        f"{_control(stage)}/replies", json=[{"match": "poison-ticket", "times": None, "text": "no JSON at all"}]
    )
    for number in range(POISONED):
        payload = TicketOpened(
            ticket_id=f"poison-ticket-{number}", title=f"poison-ticket {number}", body="My card has not arrived yet."
        )
        await stage.client.publish(payload, tenant="acme", event_id=f"poison-ticket-{number}")
    letters = await _dead_letters(stage, len(garbage) + POISONED)
    stage.report.dead_letters = len(letters)
    stage.say(f"    {len(letters)} dead letters: {', '.join(sorted({letter.reason for letter in letters}))}")
    await stage.control.post(f"{_control(stage)}/reset", json={})
    outcome = await stage.operations.replay(dead_letters.Filter(reason="bad_model_output"))
    await _until(
        stage,
        lambda: all(("acme", f"poison-ticket-{number}") in stage.witness.triaged for number in range(POISONED)),
        "triage after the replay",
    )
    stage.report.replayed = len(outcome.done)
    unreadable = tuple(letter.id for letter in letters if letter.reason != "bad_model_output")
    stage.report.discarded = len(
        await stage.operations.discard(dead_letters.Filter(ids=unreadable), reason="the demo's own garbage")
    )
    stage.say(f"    {stage.report.replayed} replayed after the fix, {stage.report.discarded} discarded with a reason")


async def _dead_letters(stage: Stage, count: int) -> list[dead_letters.DeadLetter]:
    with anyio.fail_after(ACT_WITHIN_S):
        while True:
            letters = dead_letters.select(await stage.operations.load(), dead_letters.Filter())
            if len(letters) >= count:
                return letters
            await anyio.sleep(0.5)


async def _account(stage: Stage) -> None:
    """Count from the topics and from the back office's own journal."""
    report, witness = stage.report, stage.witness
    queries = [*stage.questions, *stage.tasks]
    streams = [witness.streams[one] for one in queries]
    report.answers_completed = sum(1 for stream in streams if stream.completed)
    report.streams_true = sum(1 for stream in streams if stream.is_true())
    report.tasks_run = len(stage.tasks)
    report.approvals_requested = len(witness.requests)
    report.decisions_accepted = len(witness.accepted)
    report.decisions_refused = len(witness.refused)
    report.decisions_edited = len(stage.approver.edited)
    report.decisions_rejected = len(stage.approver.rejected)
    undecided = sum(1 for one in stage.approver.sent if one not in witness.accepted and one not in witness.refused)
    unanswered = sum(1 for stream in streams if not stream.ended)
    untriaged = TICKETS + POISONED - len(witness.triaged)
    still_dead = len(dead_letters.select(await stage.operations.load(), dead_letters.Filter()))
    report.tickets_triaged = len(witness.triaged)
    report.lost = undecided + unanswered + untriaged + still_dead + len(datasets.articles()) - report.articles_indexed
    summary = (await stage.control.get(f"{stage.host.stack.endpoints.back_office_url}/v1/journal/summary")).json()
    report.effects = summary["effects"]
    report.double_effects = summary["double_effects"]
    await _check_end_states(stage)


async def _check_end_states(stage: Stage) -> None:
    """Compare the back office's records with the known end states of the tasks that people left as they were."""
    changed_by_people = {_thread_of(stage, one) for one in stage.approver.edited | stage.approver.rejected}
    for task in stage.tasks.values():
        if task.task_id in changed_by_people:
            continue
        stage.report.end_states_expected += 1
        url = f"{stage.host.stack.endpoints.back_office_url}/v1/shop-{task.task_id}/changes"
        found = (await stage.control.get(url)).json()
        stage.report.end_states_right += same_changes(found, task)


def _thread_of(stage: Stage, approval_id: str) -> str:
    """The thread of an approval."""
    return stage.witness.requests[approval_id][1].thread_id


def _control(stage: Stage) -> str:
    return stage.host.stack.endpoints.model_base_url.removesuffix("/v1") + "/control"


async def _until(stage: Stage, condition: Callable[[], bool], waiting_for: str) -> None:
    await stage.witness.until(condition, within_s=ACT_WITHIN_S, waiting_for=waiting_for)


ACTS: Final = (_index_articles, _ask_questions, _run_tasks, _decide_again, _poison)
