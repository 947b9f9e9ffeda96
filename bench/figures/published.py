"""Answers of tenants whose articles are nearly the same, from one worker that serves them all: whose words do they hold?

Every tenant asks the same questions under the same thread and event ids. Looked at are the streamed deltas, the final texts, their
citations, the calls and results of tools, the examples that triage shows, everything in Redis, what `sluice threads show --reveal`
prints, the page of an evaluation, and the logs. The control asks a worker whose searches have neither filters nor checks.
"""

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio

from bench import rig
from bench.figures import judged, places
from bench.figures.bounds import hold
from bench.figures.marks import PUBLISHING, Tally, edition
from bench.figures.shown_examples import look_at_examples, plant
from bench.figures.streams import Heard
from bench.figures.unguarded import no_guards
from flows.agent.state import ThreadRef
from infra.local.processes import Server, ServerSpec
from infra.redis.checkpointer import HardenedRedisSaver
from infra.redis.client import connect
from infra.redis.keys import Keys
from infra.redis.search import RedisArticleIndex
from topics.catalogue import ANSWERS
from topics.envelope import Event
from topics.errors import TimedOutError
from topics.events import ArticlePublished, QueryAsked
from topics.records import OutboundRecord
from workers.client import Client, open_client
from workers.demo.crew import crew
from workers.demo.host import Host

ARTICLES: Final = 8
QUERIES: Final = 240
QUERIES_FULL: Final = 960
ROUND: Final = 120
CONTROLS: Final = 30
EVALUATED: Final = 8
PER_THREAD: Final = 3
WITHIN_S: Final = 240.0
PAUSE_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Asked:
    """One question of one tenant; its ids are the same in every tenant."""

    tenant: str
    thread_id: str
    query_id: str
    text: str

    @property
    def thread(self) -> ThreadRef:
        """The conversation it belongs to."""
        return ThreadRef(self.tenant, self.thread_id)


@dataclass(slots=True)
class Audience:
    """What each tenant hears of its answers."""

    heard: dict[str, Heard] = field(default_factory=lambda: {tenant: Heard() for tenant in PUBLISHING})

    async def listen(self, events: AsyncIterator[Event[Any]]) -> None:
        """Take note of everything, for ever."""
        async for event in events:
            self.heard[event.tenant].note(event)

    async def until_ended(self, asked: Sequence[Asked]) -> None:
        """Wait until every question has its end.

        Raises:
            TimedOutError: Not all of them came to one.
        """
        with anyio.move_on_after(WITHIN_S):
            for one in asked:
                while one.query_id not in self.heard[one.tenant].ended:
                    await self.heard[one.tenant].changed()
            return
        raise TimedOutError(f"not all of {len(asked)} questions ended within {WITHIN_S:g} s")


@dataclass(frozen=True, slots=True)
class Office:
    """A running host, and who speaks and listens there. `owners` is what may stand in a key -> the tenant whose it is."""

    host: Host
    client: Client
    audience: Audience
    redis: Any
    texts: Sequence[str]
    owners: dict[str, str] = field(default_factory=lambda: {tenant: tenant for tenant in PUBLISHING})

    @property
    def keys(self) -> Keys:
        """The keys of its workers."""
        return Keys(self.host.settings.redis_prefix)


async def run(*, full: bool) -> dict[str, Any]:
    """Publish, ask, look everywhere, and do it again without guards. Prints a table.

    Raises:
        FigureError: Something of another tenant was found, or a place where nothing could be found even without guards.
    """
    count = QUERIES_FULL if full else QUERIES
    broker, _ = rig.choose_broker(None)
    async with rig.rig(broker) as host, _office(host) as office:
        async with crew(host.data_dir) as members:
            await members.start("guarded", ["ingestion", "query"])
            await _index(office)
            await plant(host.settings)
            asked = await _ask(office, "guarded", count)
        found = await _look(office, asked)
        async with _unguarded_worker(host):
            control = await _ask(office, "unguarded", CONTROLS)
        with no_guards():
            leaked = await _look(office, control)
    return judge(found, leaked, asked=len(asked), control=len(control))


def judge(found: Tally, leaked: Tally, *, asked: int, control: int) -> dict[str, Any]:
    """Figures and bounds of an audit and its control."""
    everywhere = (*places.OWNED, *places.NOBODYS)
    rig.print_table(
        f"Texts with a tenant's mark; {asked} answers of {len(PUBLISHING)} tenants under the same ids, {control} without guards",
        ("where", "of its own", "of another tenant", "of another, without guards"),
        [(place, found.own[place], found.foreign[place], leaked.foreign[place]) for place in everywhere],
    )
    figures = {
        "answers_audited": asked,
        "leaks_published": found.foreign.total(),
        "leaks_control_published": leaked.foreign.total(),
        **{f"leaks_{place}": found.foreign[place] for place in everywhere},
    }
    return hold(
        figures,
        nothing_leaks_into_what_is_published=found.foreign.total() == 0,
        every_place_was_looked_at=all(found.own[place] for place in places.OWNED),
        without_guards_every_place_leaks=all(leaked.foreign[place] for place in places.LEAKING),
    )


def questions(name: str, texts: Sequence[str], count: int) -> Iterator[Asked]:
    """Each text by every tenant in turn, `PER_THREAD` to a thread. `name` keeps the threads of two rounds apart."""
    for number in range(count // len(PUBLISHING)):
        thread_id, text = f"{name}-{number // PER_THREAD}", texts[number % len(texts)]
        for tenant in PUBLISHING:
            yield Asked(tenant, thread_id, f"{name}-q{number}", text)


@asynccontextmanager
async def _office(host: Host) -> AsyncGenerator[Office]:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(open_client(host.settings, source="bench"))
        events = await stack.enter_async_context(client.watch([ANSWERS]))
        redis = connect(host.settings.redis_url, timeout_s=30.0)
        stack.push_async_callback(redis.aclose)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        audience = Audience()
        tasks.start_soon(audience.listen, events)
        yield Office(host, client, audience, redis, _judged_questions()[1])
        tasks.cancel_scope.cancel()


def _judged_questions() -> tuple[Sequence[ArticlePublished], Sequence[str]]:
    """The articles that answer the most questions, and these questions."""
    chosen = judged.load("wixqa")

    def answers(article: ArticlePublished) -> list[str]:
        return [question.text for question in chosen.questions if article.article_id in question.relevant]

    articles = sorted(chosen.articles, key=lambda one: -len(answers(one)))[:ARTICLES]
    return articles, list(dict.fromkeys(text for one in articles for text in answers(one)))


async def _index(office: Office) -> None:
    """Publish every tenant's edition of the articles, and wait until all of them are in the index."""
    editions = [(tenant, edition(article, tenant)) for article in _judged_questions()[0] for tenant in PUBLISHING]
    records = [office.client.record(article, tenant=tenant, event_id=article.article_id) for tenant, article in editions]
    await rig.publish_all(office.host.settings.kafka(), records)
    index = RedisArticleIndex(office.redis, office.keys)
    with anyio.move_on_after(WITHIN_S):
        while await index.count() < len(editions):  # noqa: ASYNC110 -- Redis tells nobody of it
            await anyio.sleep(PAUSE_S)
        return
    raise TimedOutError(f"{len(editions)} articles were not indexed within {WITHIN_S:g} s")


async def _ask(office: Office, name: str, count: int) -> list[Asked]:
    """Ask in rounds, so that the time for each is bounded however many there are."""
    asked = list(questions(name, office.texts, count))
    office.owners.update((one.thread.checkpoint_id, one.tenant) for one in asked)
    for begin in range(0, count, ROUND):
        round_ = asked[begin : begin + ROUND]
        await rig.publish_all(office.host.settings.kafka(), [_record(office.client, one) for one in round_])
        await office.audience.until_ended(round_)
    return asked


def _record(client: Client, one: Asked) -> OutboundRecord:
    return client.record(QueryAsked(thread_id=one.thread_id, text=one.text), tenant=one.tenant, event_id=one.query_id)


@asynccontextmanager
async def _unguarded_worker(host: Host) -> AsyncGenerator[None]:
    command = [sys.executable, "-m", "bench.figures.unguarded", str(host.data_dir), "query"]
    log = host.data_dir / "logs" / "unguarded.log"
    worker = Server(ServerSpec(name="unguarded", command=command, log_path=log, stop_grace_s=40.0))
    await worker.start()
    try:
        yield
    finally:
        await worker.stop()


async def _look(office: Office, asked: Sequence[Asked]) -> Tally:
    """Look at all that these questions left behind."""
    tally, settings, data_dir = Tally(), office.host.settings, office.host.data_dir
    saver = HardenedRedisSaver(office.redis, keys=office.keys)
    for one in asked:
        places.look_at_answer(tally, office.audience.heard[one.tenant], one.tenant, one.query_id)
    for thread in dict.fromkeys(one.thread for one in asked):
        await places.look_at_tools(tally, saver, thread)
        await places.look_at_thread(tally, data_dir, thread)
    await look_at_examples(tally, settings)
    await places.look_at_redis(tally, office.redis, office.owners)
    await places.look_at_evaluation(tally, settings, office.texts[:EVALUATED])
    places.look_at_logs(tally, data_dir)
    return tally
