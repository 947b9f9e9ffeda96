"""How tools run: behind the ledger, in the asker's name, with errors a model may read."""

import anyio
import anyio.lowlevel
import pytest

from flows.agent.parts import AgentLimits
from flows.agent.tools import ToolContext, tool
from tests.fakes.agents import THREAD, TOOLS, World, adds_up, one, only
from tests.fakes.chat_model import Script, call, say
from tests.fakes.ledger import CrashError, CrashingLedger
from tests.fakes.retriever import FakeRetriever, passage
from topics import events
from topics.errors import ConfigError, FencedError, TimedOutError, UnavailableError

REFUND = {"order": "o-1", "cents": 1}


def _world(*turns, **more) -> World:
    return World(script=Script(turns=list(turns)), **more)


async def _tool_texts(world: World) -> list[str]:
    return [message.text for message in await world.messages() if message.type == "tool"]


@pytest.mark.parametrize(
    ("name", "arguments", "part"),
    [
        ("no_such_tool", {}, "no such tool"),
        ("refund", {"order": "o-1"}, "cents"),
        ("refund", {"order": "o-1", "cents": 1, "tenant": "globex"}, "tenant"),
        ("refund", {"order": "o-1", "cents": 2**60}, "out of range"),
        ("refund", "{not json", "not valid JSON"),
        ("refund", '{"order": "o-1", "cents": 49', "not valid JSON"),
        ("refund", '{"order": "o-1", "cents": NaN}', "not valid JSON"),
        ("add_note", {"text": "n", "extra": {"big": 10**40}}, "out of range"),
        ("add_note", '{"text": "n", "extra": ' + '{"a":' * 200 + "1" + "}" * 201, "not valid JSON"),
        ("broken", {}, "failed"),
        ("refusing", {}, "already closed"),
    ],
)
async def test_what_cannot_run_is_explained_to_the_model_without_asking_anybody(name: str, arguments: dict | str, part: str):
    world = _world(call(("c1", name, arguments)), say("Sorry."))
    told = await world.ask()
    assert only(events.ApprovalRequested, told) == []
    (text,) = await _tool_texts(world)
    assert part in text
    assert "jane@example.test" not in text
    assert len(text) < 600
    assert adds_up(told).text == "Sorry."


async def test_an_irreversible_call_in_doubt_is_looked_up_and_not_repeated():
    world = _world(call(("c1", "refund", REFUND)), say("Done."))
    world.service.honours_keys = False
    request = one(events.ApprovalRequested, await world.ask())
    inner, world.ledger = world.ledger, CrashingLedger(world.ledger, at="after effect, before record")
    with pytest.raises(CrashError):
        await world.resume(request)
    world.ledger = inner
    told = await world.resume(request)
    assert (len(world.effects()), world.service.lookups) == (1, 1)
    assert one(events.ApprovalExecuted, told).status == "ok"


@pytest.mark.parametrize("at", ["after claim, before effect", "after effect, before record"])
async def test_an_irreversible_call_that_nobody_can_look_up_is_never_tried_twice(at: str):
    world = _world(call(("c1", "wire_money", {"cents": 5})), say("Ask a person."))
    request = one(events.ApprovalRequested, await world.ask())
    inner, world.ledger = world.ledger, CrashingLedger(world.ledger, at=at)
    with pytest.raises(CrashError):
        await world.resume(request)
    world.ledger = inner
    ran_before = len(world.effects())
    told = await world.resume(request)
    assert len(world.effects()) == ran_before
    assert one(events.ApprovalExecuted, told).status == "in_doubt"
    assert one(events.ApprovalRequested, told).kind == "in_doubt"
    assert await _tool_texts(world) == []


@pytest.mark.parametrize("error", [UnavailableError("shop"), TimedOutError("shop")])
@pytest.mark.parametrize("name", ["read_order", "add_note"])
async def test_a_tool_that_is_away_makes_the_record_run_again(name: str, error: Exception):
    arguments = {"order": "1"} if name == "read_order" else {"text": "n"}
    world = _world(call(("c1", name, arguments)), say("Done."))

    def away(_operation: str) -> None:
        world.service.before_effect = lambda _operation: None
        raise error

    world.service.before_effect = away
    with pytest.raises(type(error)):
        await world.ask()
    assert (await world.agent().status(THREAD)).open_step
    assert adds_up(await world.ask()).text == "Done."
    assert len(world.effects()) == 1
    assert len(world.script.prompts) == 2


async def test_an_irreversible_call_without_an_answer_is_looked_up_on_the_next_run():
    world = _world(call(("c1", "refund", REFUND)), say("Done."))
    request = one(events.ApprovalRequested, await world.ask())

    def answer_lost(_operation: str) -> None:
        world.service.after_effect = lambda _operation: None
        raise TimedOutError("no answer")

    world.service.after_effect = answer_lost
    with pytest.raises(TimedOutError):
        await world.resume(request)
    told = await world.resume(request)
    assert len(world.effects()) == 1
    assert one(events.ApprovalExecuted, told).status == "ok"


async def test_a_tool_that_takes_too_long_is_cut_off():
    @tool(effect="READ", timeout_s=0.01)
    async def slow(context: ToolContext) -> str:  # noqa: ARG001 the shape of every tool
        """Wait for ever."""
        await anyio.sleep_forever()
        return ""

    world = _world(call(("c1", "slow", {})), say("Done."), tools=(slow,))
    with pytest.raises(TimedOutError):
        await world.ask()


async def test_a_fenced_worker_runs_no_effect():
    world = _world(call(("c1", "add_note", {"text": "n"})), say("Done."))
    world.ledger.fences[THREAD.checkpoint_id] = 99
    with pytest.raises(FencedError):
        await world.ask()
    assert world.effects() == []


@pytest.mark.parametrize("key", ["lc", "__interrupt__", "__send__", "__bytes__"])
async def test_marker_keys_in_arguments_stay_plain(key: str):
    extra = {key: 1, "type": "constructor", "id": ["os", "system"], "kwargs": {}}
    world = _world(call(("c1", "add_note", {"text": "n", "extra": extra})), say("Done."))
    await world.ask()
    assert world.effects() == [("note", {"text": "n", "extra": extra})]
    ordered = next(message for message in await world.messages() if message.type == "ai")
    assert ordered.tool_calls[0]["args"]["extra"] == extra


async def test_an_endless_result_is_cut():
    @tool(effect="READ")
    async def endless(context: ToolContext) -> str:  # noqa: ARG001 the shape of every tool
        """Talk."""
        return "x" * 1_000_000

    world = _world(call(("c1", "endless", {})), say("Done."), tools=(endless,))
    await world.ask()
    assert len((await _tool_texts(world))[0]) < 20_000


async def test_a_toolset_must_leave_the_search_its_name():
    @tool(effect="READ")
    async def search_articles(context: ToolContext) -> str:  # noqa: ARG001 the shape of every tool
        """Search."""
        return ""

    with pytest.raises(ConfigError, match="rename"):
        await _world(say("x"), tools=(*TOOLS, search_articles)).ask()


async def test_a_tool_that_is_away_does_not_cut_off_the_effect_beside_it():
    begun, failed = anyio.Event(), anyio.Event()

    @tool(effect="IRREVERSIBLE")
    async def slow_wire(context: ToolContext) -> str:
        """Send money, slowly, where nobody can look."""
        begun.set()
        await failed.wait()
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        return await context.service.call("wire", {}, tenant=context.tenant)

    @tool(effect="READ")
    async def away(context: ToolContext) -> str:  # noqa: ARG001 the shape of every tool
        """Be away, once."""
        if failed.is_set():
            return "here"
        await begun.wait()
        failed.set()
        raise UnavailableError("away")

    world = _world(call(("c1", "slow_wire", {}), ("c2", "away", {})), say("Done."), tools=(slow_wire, away))
    request = one(events.ApprovalRequested, await world.ask())
    with pytest.raises(UnavailableError):
        await world.resume(request)
    told = await world.resume(request)
    assert one(events.ApprovalExecuted, told).status == "ok"
    assert world.effects() == [("wire", {})]


async def test_reads_of_one_turn_run_at_the_same_time():
    """Each waits for the others: one after the other, none would end."""
    together, arrived = anyio.Event(), list[str]()

    @tool(effect="READ", timeout_s=5.0)
    async def meet(context: ToolContext, *, name: str) -> str:  # noqa: ARG001 the shape of every tool
        """Wait for two others."""
        arrived.append(name)
        if len(arrived) == 3:
            together.set()
        await together.wait()
        return name

    world = _world(call(*((f"c{name}", "meet", {"name": name}) for name in "abc")), say("Done."), tools=(meet,))
    assert adds_up(await world.ask()).text == "Done."
    assert await _tool_texts(world) == ["a", "b", "c"]


class Meeting(FakeRetriever):
    """Answers only when as many searches are under way as were promised, and the last of them first."""

    def __init__(self, searches: int) -> None:
        super().__init__({name: [passage(name)] for name in "abc"})
        self.left, self.together = searches, anyio.Event()

    async def search(self, *, tenant: str, query: str, limit: int):
        self.left -= 1
        if not self.left:
            self.together.set()
        await self.together.wait()
        for _ in range("cba".index(query) * 5):
            await anyio.lowlevel.checkpoint()
        return await super().search(tenant=tenant, query=query, limit=limit)


async def test_searches_of_one_turn_run_at_the_same_time_and_are_numbered_in_the_order_of_the_calls():
    world = _world(call(*((f"c{name}", "search_articles", {"query": name}) for name in "abc")), say("Done [2]."))
    world.retriever = Meeting(3)
    done = adds_up(await world.ask())
    assert [text.split()[0] + text[-1] for text in await _tool_texts(world)] == ["[1]a", "[2]b", "[3]c"]
    assert [citation.passage for citation in done.citations] == ["b"]


async def test_a_search_that_fails_beside_another_is_the_error_that_its_record_waits_for():
    class Half(FakeRetriever):
        async def search(self, *, tenant: str, query: str, limit: int):
            if query == "b":
                raise UnavailableError("index")
            return await super().search(tenant=tenant, query=query, limit=limit)

    world = _world(call(*((f"c{name}", "search_articles", {"query": name}) for name in "ab")), say("Done [1]."))
    world.retriever = Half({"a": [passage("A")], "b": [passage("B")]})
    with pytest.raises(UnavailableError):
        await world.ask()
    world.retriever = FakeRetriever({"a": [passage("A")], "b": [passage("B")]})
    assert adds_up(await world.ask()).text == "Done [1]."
    assert len(world.script.prompts) == 2, "the turn that ordered the searches was kept"


SECRETS = ("sk-" + "live4f9aK2mQx81LpZ03vT", "4111 1111 1111 1111", "Bearer 9f8e7d6c5b4a39281706f5e4d3c2")


@pytest.mark.parametrize("secret", SECRETS)
async def test_a_secret_in_a_result_is_masked_before_the_model_reads_it_and_an_address_is_not(secret: str):
    """P11: else it would go on into calls, requests that people see, and summaries."""

    @tool(effect="READ")
    async def leaky(context: ToolContext) -> str:  # noqa: ARG001 the shape of every tool
        """Tell too much."""
        return f"Key {secret} for https://shop.example/a?b=1, kept."

    found = {"keys": [passage(f"The key is {secret} of old.")]}
    turn = call(("c1", "leaky", {}), ("c2", "search_articles", {"query": "keys"}))
    world = _world(turn, say("Done [1]."), tools=(leaky,), retriever=FakeRetriever(found))
    told = await world.ask()
    texts = await _tool_texts(world)
    assert secret not in str(told), "nor in what is cited"
    assert not [text for text in texts if secret in text]
    assert any("https://shop.example/a?b=1, kept." in text for text in texts)


async def test_a_secret_that_the_cut_of_a_result_goes_through_is_masked_whole():
    @tool(effect="READ")
    async def leaky(context: ToolContext) -> str:  # noqa: ARG001 the shape of every tool
        """Tell too much."""
        return "x" * 95 + " " + SECRETS[0] + "y" * 100

    world = _world(call(("c1", "leaky", {})), say("Done."), tools=(leaky,), limits=AgentLimits(tool_result_chars=110))
    await world.ask()
    assert "sk-" not in (await _tool_texts(world))[0]
