"""Streams under cuts, errors and a killed worker: is what a consumer joins the answer that was meant, byte for byte?

The model's text is cut anywhere, in emoji, secrets and addresses too. The consumer knows the topic alone: it joins the deltas of
the last attempt. The control joins all of them.
"""

import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import httpx

from bench import rig
from bench.figures.bounds import hold
from flows.answer_filter import shown_text
from topics.catalogue import ANSWERS, QUERIES
from topics.envelope import Event
from topics.errors import TimedOutError
from topics.events import AnswerCompleted, AnswerDelta, AnswerFailed, AnswerRestarted, Payload, QueryAsked
from workers.client import Client, open_client
from workers.demo.crew import Crew, crew
from workers.demo.host import Host

STREAMS: Final = 60
STREAMS_FULL: Final = 400
TOKENS_PER_S: Final = 25.0
PER_THREAD: Final = 2
WITHIN_S: Final = 240.0
SECRETS: Final = (
    "sk-live-4f9aK2mQx81LpZ03vT",
    "4111 1111 1111 1111",
    "AKIAQX7PLM2ZT9WB3RDE",
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiI0MiJ9.c2ln",
    "Bearer 9f8e7d6c5b4a39281706f5e4d3c2",
    "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\n-----END PRIVATE KEY-----",
)
WORDS: Final = (
    *(
        "Your",
        "order",
        "is",
        "on",
        "its",
        "way",
        "with",
        "40",
        "parcels,",
        "naïve",
        "Grüße",
        "\u202e\u05e9\u05dc\u05d5\u05dd\u202c",
        "日本語",
    ),
    *(
        "👩\u200d👩\u200d👧",
        "🇩🇪",
        "👍🏽",
        "see [1],",
        "**now**",
        "https:",
        "sk",
        "\n\n",
        "e\u0301te",
        "[here](https://evil.example/x?y=z)",
    ),
)
# How a stream's first tries go wrong; most go well.
FAULTS: Final[tuple[dict[str, Any], ...]] = (
    *({"kind": kind} for kind in ("cut", "drop", "error_event", "malformed")),
    {"kind": "cut", "times": 2},
    {"kind": "status", "status": 503},
    {"kind": "status", "status": 429, "retry_after_s": 0.5},
    *({} for _ in range(6)),
)
COLUMNS: Final = ("streams", "count", "restarted", "restarts", "wrong", "wrong without restarts")


@dataclass(frozen=True, slots=True)
class Planned:
    """One question, and what the model does with it: text cut into pieces, a fault, a tool call before it."""

    query_id: str
    thread_id: str
    pieces: tuple[str, ...]
    fault: dict[str, Any]
    calls_first: bool

    @property
    def mark(self) -> str:
        """What a script knows it by."""
        return f"<{self.query_id}>"


@dataclass(slots=True)
class Heard:
    """What a consumer was given, duplicates dropped by event id."""

    seen: set[str] = field(default_factory=set[str])
    payloads: dict[str, list[Payload]] = field(default_factory=lambda: defaultdict[str, list[Payload]](list))
    ended: set[str] = field(default_factory=set[str])
    _end: anyio.Event = field(default_factory=anyio.Event)

    async def changed(self) -> None:
        """Wait until another stream ends."""
        await self._end.wait()

    def note(self, event: Event[Any]) -> None:
        """Take note of one event."""
        payload = event.payload
        if event.id in self.seen or not isinstance(payload, AnswerDelta | AnswerRestarted | AnswerCompleted | AnswerFailed):
            return
        self.seen.add(event.id)
        self.payloads[payload.query_id].append(payload)
        if isinstance(payload, AnswerCompleted | AnswerFailed):
            self.ended.add(payload.query_id)
            self._end.set()
            self._end = anyio.Event()

    def completed(self, query_id: str) -> str | None:
        """The final text, or None where there is none."""
        return next((one.text for one in self.payloads[query_id] if isinstance(one, AnswerCompleted)), None)

    def joined(self, query_id: str) -> str:
        """The deltas of the last attempt, by sequence."""
        deltas = [one for one in self.payloads[query_id] if isinstance(one, AnswerDelta)]
        attempts = [one.attempt for one in self.payloads[query_id] if isinstance(one, AnswerDelta | AnswerRestarted)]
        last = {one.sequence: one.text for one in deltas if one.attempt == max(attempts)}
        return "".join(last[number] for number in sorted(last))

    def joined_all(self, query_id: str) -> str:
        """Every delta, as one who does not know of restarts would join them."""
        return "".join(one.text for one in self.payloads[query_id] if isinstance(one, AnswerDelta))

    def restarts(self, query_id: str) -> int:
        """How often earlier text became void."""
        return sum(isinstance(one, AnswerRestarted) for one in self.payloads[query_id])


async def run(*, full: bool) -> dict[str, Any]:
    """Stream, cut, kill and compare. Prints a table.

    Raises:
        FigureError: A stream was not what was meant, a secret was shown, or the control saw nothing.
    """
    broker, said = rig.choose_broker(None)
    print(f"  {said}")
    plans = list(planned(STREAMS_FULL if full else STREAMS, random.Random(29)))
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(rig.rig(broker, lease_s=3.0, slots=100))
        members = await stack.enter_async_context(crew(host.data_dir))
        for name in ("first", "second"):
            await members.start(name, ["query"])
        await rig.until_assigned(members, ["first", "second"], partitions=2 * QUERIES.partitions)
        await script(host, plans)
        client = await stack.enter_async_context(open_client(host.settings, source="bench"))
        heard = await _stream(client, members, plans)
    return _judged(heard, plans)


def planned(count: int, chance: random.Random) -> Iterator[Planned]:
    """Questions, `PER_THREAD` to a thread; every one differs, and all are the same from run to run."""
    for number in range(count):
        words = chance.choices(WORDS, k=chance.randint(12, 40))
        words.insert(chance.randrange(len(words)), chance.choice((*SECRETS, "https://evil.example/leak?q=1")))
        text = " ".join(words)
        fault = dict(chance.choice(FAULTS))
        if fault.get("kind") not in {None, "status"}:
            fault["after_chunks"] = chance.randint(1, 12)
        yield Planned(f"s{number}", f"t{number // PER_THREAD}", cut(text, chance), fault, calls_first=chance.random() < 0.15)


def cut(text: str, chance: random.Random) -> tuple[str, ...]:
    """A text in pieces of one to nine characters."""
    pieces, begin = list[str](), 0
    while begin < len(text):
        end = begin + chance.randint(1, 9)
        pieces.append(text[begin:end])
        begin = end
    return tuple(pieces)


async def script(host: Host, plans: Sequence[Planned]) -> None:
    """Tell the model server what to answer, how to cut it, and where to fail."""
    replies: list[dict[str, Any]] = []
    last_first = plans[::-1]  # a request carries its thread's earlier questions too, and the first script that matches is taken
    for plan in last_first:
        if plan.calls_first:
            call = {"name": "get_order_details", "arguments": {"order_id": "#W0000000"}}
            replies.append({"match": plan.mark, "cut": ("One mo", "ment. "), "tool_calls": [call]})
        replies.append({"match": plan.mark, "cut": plan.pieces, "times": None})
    faults = [{"match": plan.mark, **plan.fault} for plan in last_first if plan.fault]
    url = host.stack.endpoints.model_base_url.removesuffix("/v1") + "/control"
    async with httpx.AsyncClient(timeout=30.0, trust_env=False) as http:
        for endpoint, body in (("pace", {"tokens_per_s": TOKENS_PER_S}), ("replies", replies), ("faults", faults)):
            (await http.post(f"{url}/{endpoint}", json=body)).raise_for_status()


async def _stream(client: Client, members: Crew, plans: Sequence[Planned]) -> Heard:
    """Ask everything; kill a worker when a third has ended; hear it out.

    Raises:
        TimedOutError: Not all ended.
    """
    heard = Heard()
    async with client.watch([ANSWERS]) as events, anyio.create_task_group() as tasks:
        tasks.start_soon(_listen, events, heard)
        for plan in plans:
            query = QueryAsked(thread_id=plan.thread_id, text=f"Please answer {plan.mark}", user_id="bench")
            await client.publish(query, tenant="bench", event_id=plan.query_id)
        await _until(heard, len(plans) // 3)
        await members.kill("first")
        await members.start("third", ["query"])
        await _until(heard, len(plans))
        tasks.cancel_scope.cancel()
    return heard


async def _listen(events: AsyncIterator[Event[Any]], heard: Heard) -> None:
    async for event in events:
        heard.note(event)


async def _until(heard: Heard, count: int) -> None:
    with anyio.move_on_after(WITHIN_S):
        while len(heard.ended) < count:
            await heard.changed()
    if len(heard.ended) < count:
        raise TimedOutError(f"{len(heard.ended)} of {count} streams ended within {WITHIN_S:g} s")


def _judged(heard: Heard, plans: Sequence[Planned]) -> dict[str, Any]:
    restarts = Counter({plan.query_id: heard.restarts(plan.query_id) for plan in plans})
    finals = {plan.query_id: heard.completed(plan.query_id) for plan in plans}
    wrong = [one for one, final in finals.items() if final is None or heard.joined(one) != final]
    unmeant = [plan.query_id for plan in plans if finals[plan.query_id] != shown_text("".join(plan.pieces))]
    blind = [one for one, final in finals.items() if heard.joined_all(one) != final]
    shown = sum(secret in heard.joined_all(plan.query_id) for plan in plans for secret in SECRETS)
    restarted = sum(count > 0 for count in restarts.values())
    row = ("cut anywhere, one worker killed", len(plans), restarted, restarts.total(), len(wrong), len(blind))
    rig.print_table("Streams", COLUMNS, [row])
    figures = {
        "streams": len(plans),
        "stream_restarts": restarts.total(),
        "stream_mismatches": len(wrong),
        "stream_mismatches_control": len(blind),
        "stream_texts_not_meant": len(unmeant),
        "stream_secrets_shown": shown,
    }
    return hold(
        figures,
        every_stream_is_its_answer=not wrong,
        every_answer_is_what_was_meant=not unmeant,
        no_secret_is_shown=not shown,
        the_control_sees_mismatches=bool(blind),
        streams_were_restarted=restarts.total() > 0,
    )
