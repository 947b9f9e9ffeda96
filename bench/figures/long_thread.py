"""A thread of forty turns: what a turn costs once the conversation has outgrown the window, and what is still known at its end.

The agent with its shipped limits, over Redis and the model server, which counts the tokens it is sent. Three threads have the same
turns: as shipped, with everything replayed, and with exchanges that go without a summary. The second turn states a fact that the
last one asks for; the model answers from what stands in its prompt and nowhere else. And, apart from threads: what a router of
forty tools saves, and how often it shows the tool that a known solution needs next, on tasks that did not choose its weights.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.language_models import BaseChatModel

from bench import rig, tool_router
from bench.figures.bounds import hold
from flows import chunking
from flows.agent.threads import Agent, AgentLimits, ThreadRef
from flows.agent.tools import Toolset
from flows.ports import Passage
from infra.clock import SystemClock
from infra.local.data import datasets
from infra.redis.checkpointer import HardenedRedisSaver
from infra.redis.effects import RedisEffectLedger
from infra.redis.leases import RedisLeases
from topics.events import AnswerCompleted
from workers.models import build_models
from workers.parts import Parts, build_parts

TURNS: Final = 40
TENANT: Final = "wix"
FACT: Final = "My order number is #W5544207 and I paid 129.90 for it."
KNOWN: Final = "#W5544207"
RECALL: Final = "What is the order number I told you about earlier?"
MEASURED_AFTER: Final = 10
RATIO_GOAL: Final = 0.4
HITS_GOAL: Final = 0.8
NO_BOUND: Final = 10_000_000
# A turn of this thread calls the model twice, and once more where it folds; the rules stand in front of each.
CALLS_A_TURN: Final = 3
RULES_TOKENS: Final = 600


class Shelf:
    """A retriever that knows which article a question is about: retrieval has its own section."""

    def __init__(self) -> None:
        self._articles = {article.article_id: article for article in datasets.articles() if article.tenant == TENANT}
        self._about = {one.text: one.article_ids for one in datasets.questions() if one.tenant == TENANT}
        self._any = next(iter(self._articles))

    async def search(self, *, tenant: str, query: str, limit: int) -> Sequence[Passage]:
        """The first passages of the question's articles; of any article for what is no question of the set."""
        found = [self._articles[article_id] for article_id in self._about.get(query, (self._any,))]
        return [
            Passage(tenant, article.article_id, article.title, piece.title_path, piece.text, 1, ordinal)
            for article in found
            for ordinal, piece in enumerate(chunking.chunk(article.title, article.text))
        ][:limit]


@dataclass(frozen=True, slots=True)
class Thread:
    """What a thread's turns cost, in input tokens each, and its last answer."""

    input_tokens: tuple[int, ...]
    last: str

    @property
    def knows(self) -> bool:
        """Whether the fact is in the last answer."""
        return KNOWN in self.last


async def run(*, full: bool) -> dict[str, Any]:  # noqa: ARG001 -- the shape of every section; this one has one size
    """Lead the three threads, and route the forty tools. Prints the tables.

    Raises:
        FigureError: A turn is not bounded, the thread costs too much of a replayed one, or the fact is not known at its end;
            or the router hides the needed tool too often.
    """
    limits, texts = AgentLimits(), turns(TURNS)
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(rig.rig("tansu"))
        parts = await stack.enter_async_context(build_parts(host.settings))
        model = build_models(host.settings, stack=stack).chat
        shipped = await lead(parts, model, limits, "shipped", texts)
        replayed = await lead(parts, model, AgentLimits(history_tokens=NO_BOUND), "replayed", texts)
        forgetful = await lead(parts, model, AgentLimits(summary_tokens=0), "forgetful", texts)
    return _figures(limits, shipped, replayed, forgetful) | _router_figures()


def turns(count: int) -> list[str]:
    """What the customer says: questions of the set, the fact second and the question about it last."""
    asked = [one.text for one in datasets.questions() if one.tenant == TENANT and one.article_ids]
    middle = (asked * (count // len(asked) + 1))[: count - 2]
    return [middle[0], FACT, *middle[1:], RECALL]


async def lead(parts: Parts, model: BaseChatModel, limits: AgentLimits, name: str, texts: Sequence[str]) -> Thread:
    """Ask every text on one thread, each under a lease of its own, as a worker would."""
    agent = Agent(
        model=model,
        checkpointer=HardenedRedisSaver(parts.redis, keys=parts.keys),
        toolset_for=lambda _tenant: Toolset("articles", "You work for the makers of a website builder.", ()),
        service=_NoService(),
        retriever=Shelf(),
        ledger=RedisEffectLedger(parts.redis, keys=parts.keys),
        clock=SystemClock(),
        limits=limits,
    )
    leases, thread = RedisLeases(parts.redis, keys=parts.keys), ThreadRef(TENANT, name)
    spent, last = list[int](), ""
    for number, text in enumerate(texts):
        async with leases.hold(thread.checkpoint_id) as lease:
            payloads = agent.ask(thread, query_id=f"{name}-{number}", text=text, user_id="u-1", fence=lease.fence)
            async with aclosing(payloads) as told:
                completed = [one async for one in told if isinstance(one, AnswerCompleted)]
        spent.append(completed[0].input_tokens or 0)
        last = completed[0].text
    return Thread(tuple(spent), last)


class _NoService:
    """There is no tool that would call it."""

    async def call(self, operation: str, *_: Any, **__: Any) -> str:
        raise NotImplementedError(operation)

    async def lookup(self, *_: Any, **__: Any) -> str | None:
        return None


def _figures(limits: AgentLimits, shipped: Thread, replayed: Thread, forgetful: Thread) -> dict[str, Any]:
    rows = [
        (name, sum(one.input_tokens), max(one.input_tokens[MEASURED_AFTER:]), one.input_tokens[-1], "yes" if one.knows else "no")
        for name, one in (("as shipped", shipped), ("everything replayed", replayed), ("no summary", forgetful))
    ]
    title = f"{len(shipped.input_tokens)} turns; {limits.history_tokens:,} tokens of history, {limits.summary_tokens:,} of summary"
    rig.print_table(title, ("", "input tokens", "largest turn", "last turn", "fact known"), rows)
    ratio, most = sum(shipped.input_tokens) / sum(replayed.input_tokens), max(shipped.input_tokens[MEASURED_AFTER:])
    bound = CALLS_A_TURN * (limits.history_tokens + limits.summary_tokens + RULES_TOKENS)
    figures = {
        "long_thread_turns": len(shipped.input_tokens),
        "long_thread_max_input_tokens": most,
        "long_thread_bound_tokens": bound,
        "long_thread_ratio": round(ratio, 3),
        "long_thread_fact_known": shipped.knows,
        "long_thread_fact_control": forgetful.knows,
    }
    return hold(
        figures,
        a_turn_is_bounded=most <= bound,
        at_most_a_share_of_replaying=ratio <= RATIO_GOAL,
        the_fact_is_known=shipped.knows,
        and_only_from_the_summary=not forgetful.knows,
    )


def _router_figures() -> dict[str, Any]:
    figures = tool_router.measure()
    columns = ("tools", "shown at most", "tokens of all", "tokens shown", "saved", "turns", "needed tool shown", "tuning half")
    row = (
        figures["tools_all"],
        figures["tools_shown_max"],
        figures["tool_tokens_all"],
        figures["tool_tokens_shown"],
        f"{figures['tool_tokens_saved']:.0%}",
        figures["tool_turns"],
        f"{figures['tool_hits']:.1%}",
        f"{figures['tool_hits_tuning_half']:.1%}",
    )
    title = "A router over the schemas of many tools, along the known solutions of the tasks that its weights were not chosen on"
    rig.print_table(title, columns, [row])
    return hold(figures, the_needed_tool_is_shown=figures["tool_hits"] >= HITS_GOAL)
