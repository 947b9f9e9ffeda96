"""The demo's course: one act after another, each waiting for what the topics say."""

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from infra.local.data import datasets
from infra.local.stack import BrokerKind
from topics.catalogue import QUERIES
from topics.errors import ConfigError
from topics.events import ArticlePublished, QueryAsked, TicketOpened
from topics.records import OutboundRecord
from workers import dead_letters
from workers.demo.accounts import account_for
from workers.demo.gate_acts import QUIET_DESK, SECOND_DESK, decide_again, let_time_pass, need_two, run_tasks
from workers.demo.report import Report
from workers.demo.stage import Say, Stage, set_up

TICKETS: Final = 240
QUESTIONS: Final = 24
POISONED: Final = 3
TICKET_TENANTS: Final = ("acme", "globex")
LEFT_ALONE: Final = frozenset({QUIET_DESK, SECOND_DESK})


async def play(data_dir: Path | None, *, broker: BrokerKind, say: Say) -> Report:
    """Run the demo from start to end.

    Raises:
        ConfigError: The stack cannot start.
        TimedOutError: An act did not come to its end.
    """
    began_s = time.monotonic()
    with TemporaryDirectory(prefix="sluice-demo-") as folder:
        async with set_up(_empty(data_dir or Path(folder)), broker, say, left_alone=LEFT_ALONE) as stage:
            for number, act in enumerate(ACTS, start=1):
                say(f"[bold]{number}/{len(ACTS)}[/bold] {(act.__doc__ or '').strip()}")
                await act(stage)
            await account_for(stage, tickets=TICKETS + POISONED)
            stage.report.seconds = round(time.monotonic() - began_s, 1)
            return stage.report


def _empty(folder: Path) -> Path:
    """The demo's ids are always the same, so it must start from nothing: what is known already is not done again."""
    if folder.is_dir() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty, and the demo starts from nothing: name another folder")
    return folder


async def _index_articles(stage: Stage) -> None:
    """Help articles of two tenants are split, embedded and indexed; tickets arrive at the same time."""
    for article in datasets.articles():
        payload = ArticlePublished(article_id=article.article_id, title=article.title, body=article.text)
        await stage.client.publish(payload, tenant=article.tenant, event_id=f"article-{article.article_id}")
    for number, ticket in enumerate(datasets.tickets()[:TICKETS]):
        payload = TicketOpened(ticket_id=ticket.ticket_id, body=ticket.text)
        await stage.client.publish(payload, tenant=TICKET_TENANTS[number % 2], event_id=f"ticket-{ticket.ticket_id}")
    await stage.until(lambda: len(stage.witness.triaged) >= TICKETS, "triage of the tickets")
    stage.report.tickets_triaged = len(stage.witness.triaged)
    stage.say(f"    {stage.report.tickets_triaged} tickets triaged")
    wanted = len(datasets.articles())

    async def all_are_indexed() -> bool:
        stage.report.articles_indexed = await stage.index.count()
        stage.say(f"    {stage.report.articles_indexed} of {wanted} articles indexed")
        return stage.report.articles_indexed >= wanted

    await stage.look_until(all_are_indexed, "the index of all articles", every_s=3)


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
    await stage.until(lambda: all(stage.witness.streams[one].ended for one in stage.questions), "the answers")
    answered = [stage.witness.streams[one].completed for one in stage.questions]
    stage.report.answers_cited = sum(1 for one in answered if one and one.citations)
    example = next((one for one in answered if one and one.citations), None)
    if example:
        stage.say(f"    e.g. {example.text[:160]!r} from {example.citations[0].title!r}")


async def _poison(stage: Stage) -> None:
    """A topic is poisoned and a model misbehaves: dead letters, then the fault is fixed and they are replayed."""
    garbage = [b"\xff\xfe\x00 no event", b"", b'{"half":']
    for number, value in enumerate(garbage):
        headers = (("ce_type", b"query.asked"), ("ce_tenant", b"acme"), ("x-number", str(number).encode()), ("x-null", b"\x00\xff"))
        await stage.producer.write(
            OutboundRecord(stage.client.catalogue.name(QUERIES), f"acme/poison-{number}".encode(), value, headers)
        )
    await stage.control.post(
        f"{stage.model_control}/replies", json=[{"match": "poison-ticket", "times": None, "text": "no JSON at all"}]
    )
    for number in range(POISONED):
        payload = TicketOpened(
            ticket_id=f"poison-ticket-{number}", title=f"poison-ticket {number}", body="My card has not arrived yet."
        )
        await stage.client.publish(payload, tenant="acme", event_id=f"poison-ticket-{number}")
    letters = await _dead_letters(stage, len(garbage) + POISONED)
    stage.report.dead_letters = len(letters)
    stage.say(f"    {len(letters)} dead letters: {', '.join(sorted({letter.reason for letter in letters}))}")
    await stage.control.post(f"{stage.model_control}/reset", json={})
    outcome = await stage.operations.replay(dead_letters.Filter(reason="bad_model_output"))
    await stage.until(
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
    letters: list[dead_letters.DeadLetter] = []

    async def all_are_there() -> bool:
        letters[:] = dead_letters.select(await stage.operations.load(), dead_letters.Filter())
        return len(letters) >= count

    await stage.look_until(all_are_there, f"{count} dead letters", every_s=0.5)
    return letters


ACTS: Final = (_index_articles, _ask_questions, run_tasks, decide_again, need_two, let_time_pass, _poison)
