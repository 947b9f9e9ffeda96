"""Every request that reaches a provider was admitted and settled once, and budgets hold what the providers counted.

The models of a process over two model servers, whose journals are the truth: answers, searches, articles, summaries, repairs,
fallbacks and trials, with replies that are cut, that nobody counts, and that never come.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx
import pytest
from redis.asyncio import Redis

from flows.agent.threads import AgentLimits, ThreadRef
from flows.ingest import index_article
from flows.retrieval import HybridRetriever
from flows.triage import build_triage
from infra.clock import SystemClock
from infra.local.ports import free_port
from infra.models.accounts import NOTHING
from infra.models.door import Door
from infra.models.metering import OURS, Budget, Call, Meter, Usage
from infra.models.routing import ProviderEndpoint
from infra.redis.budgets import RedisBudgets, Spent
from infra.redis.client import connect
from infra.redis.keys import Keys
from infra.settings import load_settings
from tests.fakes.agents import World
from tests.fakes.article_index import MemoryIndex
from tests.infra.models.served import serving
from topics.errors import RateLimitedError, SluiceError
from topics.events import AnswerCompleted, AnswerFailed, ArticlePublished, Payload, TicketOpened, TicketTriaged
from workers.metering import build_budgets, build_meter, unpriced_models
from workers.models import Models, build_models, provider_behind

pytestmark = pytest.mark.timeout(180)

PATIENCE_S = 60
CHAT, VECTORS = "sluice-demo", "sluice-minilm"
PRICES = {CHAT: {"input_usd_cents": 15, "output_usd_cents": 60}, VECTORS: {"input_usd_cents": 2, "output_usd_cents": 0}}
FAULTS: list[dict[str, Any]] = [
    {"kind": "status", "status": 503},
    {"kind": "status", "status": 429, "retry_after_s": 0},
    {"kind": "empty_choices"},
    {"kind": "drop", "after_chunks": 2},
    {"kind": "cut", "after_chunks": 1},
    {"kind": "no_usage"},
]
UNTOLD = {"hang", "drop", "cut", "no_usage"}  # faults that keep the usage from who asked
MUCH = {"tokens": 10**9, "usd_cents": 10**9, "runs": 10**9}


@dataclass
class Book:
    """Writes down what goes through the meter."""

    meter: Meter
    admitted: list[Call] = field(default_factory=list)
    settled: list[tuple[Call, Usage | None]] = field(default_factory=list)

    async def admit(self, call: Call) -> None:
        await self.meter.admit(call)
        self.admitted.append(call)

    async def settle(self, call: Call, usage: Usage | None) -> None:
        self.settled.append((call, usage))
        await self.meter.settle(call, usage)


@dataclass
class Shop:
    """A process over providers a and b. Only a has embeddings."""

    models: Models
    book: Book
    budgets: RedisBudgets
    controls: dict[str, httpx.AsyncClient]
    index: MemoryIndex = field(default_factory=MemoryIndex)
    world: World = field(default_factory=lambda: World(limits=AgentLimits(history_tokens=500, summary_tokens=100)))

    async def fault(self, provider: str = "a", **fault: Any) -> None:
        (await self.controls[provider].post("/faults", json=fault)).raise_for_status()

    async def journal(self, provider: str) -> list[dict[str, Any]]:
        """Every request of a provider, once none is open."""
        with anyio.fail_after(PATIENCE_S):
            while (report := (await self.controls[provider].get("/requests")).json())["in_flight"]:
                await anyio.sleep(0.02)
        return report["requests"]

    async def publish(self, tenant: str, text: str) -> None:
        article = ArticlePublished(article_id="returns", title="Returns", body=text)
        await index_article(article, tenant=tenant, embedder=self.models.embedder, index=self.index)

    async def ask(
        self, tenant: str, query_id: str, text: str = "How do I return a product?", *, thread_id: str = "t"
    ) -> list[Payload]:
        """Ask until the query ends, as a lane would. Each try may die of a failure."""
        self.world.retriever = HybridRetriever(branches=self.index, embedder=self.models.embedder)
        agent, thread = self.world.agent(model=self.models.chat), ThreadRef(tenant, thread_id)
        with anyio.fail_after(PATIENCE_S):
            while True:
                self.world.fence += 1
                run = agent.ask(thread, query_id=query_id, text=text, user_id="u", fence=self.world.fence)
                try:
                    return [one async for one in run if isinstance(one, AnswerCompleted | AnswerFailed)]
                except SluiceError:
                    await anyio.sleep(0.02)

    async def give_up(self, tenant: str) -> None:
        """Ask, and leave while the provider is silent."""
        await self.fault(kind="hang")
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.models.chat.ainvoke, "Hello", {"metadata": {"tenant": tenant}})
                while not (await self.controls["a"].get("/requests")).json()["in_flight"]:
                    await anyio.sleep(0.02)
                tasks.cancel_scope.cancel()

    async def until_tried(self, door: Door[Any], attempt: Callable[[], Any]) -> None:
        """Call until a trial was made, which is due a moment after the breaker opened."""
        before = door.breaker.trials
        with anyio.fail_after(PATIENCE_S):
            while door.breaker.trials == before or door.is_out:
                try:
                    await attempt()
                except SluiceError:
                    await anyio.sleep(0.02)


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    with ExitStack() as servers:
        yield {name: servers.enter_context(serving()) for name in ("a", "b")}


@pytest.fixture
async def open_shop(urls: dict[str, str], redis_client: Redis, redis_keys: Keys) -> AsyncIterator[Callable[..., Any]]:
    async with AsyncExitStack() as stack:

        async def shop(**budget: int) -> Shop:
            providers = [{"name": name, "base_url": f"{url}/v1", "models": {CHAT: CHAT}} for name, url in urls.items()]
            settings = load_settings(
                providers=providers,
                embedding_base_url=f"{urls['a']}/v1",
                tenant_budgets={"*": {**MUCH, **budget}},
                model_prices=PRICES,
                provider_limits={"*": {"requests": 100_000, "tokens": 100_000_000, "window_s": 1, "wait_s": 0.1}},
                breaker_open_s=0.1,
            )
            budgets = build_budgets(settings, redis=redis_client, keys=redis_keys)
            book = Book(build_meter(settings, redis=redis_client, keys=redis_keys, budgets=budgets))
            controls = {
                name: await stack.enter_async_context(httpx.AsyncClient(base_url=f"{url}/control", trust_env=False))
                for name, url in urls.items()
            }
            for control in controls.values():
                (await control.post("/reset")).raise_for_status()
            return Shop(build_models(settings, stack=stack, meter=book), book, budgets, controls)

        yield shop


async def everything(shop: Shop) -> None:
    """Every way in which a provider is asked, and every way in which that ends."""
    await shop.publish("acme", "You can return a product within 30 days. " * 20)
    for number in range(8):
        await shop.ask("acme", f"q{number}", f"How do I return product {number}? " + "Please tell. " * 20)
    # A repair: the first finding is none.
    (await shop.controls["a"].post("/replies", json={"text": "{}", "match": "stolen"})).raise_for_status()
    triage = build_triage(shop.models.chat, max_concurrency=2)
    sorting = triage.triage([("globex/T-1", TicketOpened(ticket_id="T-1", body="My card was stolen"))])
    assert [type(outcome) async for _, outcome in sorting] == [TicketTriaged]
    # Fallbacks, behind each way to fail before the first word; and replies that broke off, or were not counted.
    for number, fault in enumerate(FAULTS):
        await shop.fault(**fault)
        await shop.ask("globex", f"g{number}", f"Hello, number {number}")
    await shop.give_up("globex")
    # Trials: one that fails, and one that goes well; of a provider of chat models, and of embeddings.
    chat, vectors = shop.models.chat.doors[0], shop.models.embedder.door
    await shop.fault(kind="status", status=401, times=2)
    await shop.until_tried(chat, lambda: shop.models.chat.ainvoke("Hello", {"metadata": {"tenant": "globex"}}))
    await shop.fault(kind="status", status=401, path="embeddings", times=2)
    await shop.until_tried(vectors, lambda: shop.models.embedder.embed(["a"], tenant="globex"))


def usage_of(entry: dict[str, Any]) -> Usage | None:
    """What a provider's journal says of a request: counted, turned away, or not known to who asked."""
    if entry["status"] in {401, 429, 503}:
        return NOTHING
    told = entry["status"] == 200 and UNTOLD.isdisjoint(entry["faults"])
    return Usage(entry["input_tokens"], entry["output_tokens"]) if told else None


async def test_every_request_is_admitted_and_settled_once_and_the_totals_are_the_providers_own(open_shop):
    shop = await open_shop()
    await everything(shop)
    journals = {name: await shop.journal(name) for name in ("a", "b")}
    assert Counter(map(id, shop.book.admitted)) == Counter(id(call) for call, _ in shop.book.settled)
    for provider, entries in journals.items():
        seen = Counter((entry["model"], usage_of(entry)) for entry in entries)
        assert seen == Counter((call.model, usage) for call, usage in shop.book.settled if call.provider == provider)
    asked = Counter(entry["asked"] for entries in journals.values() for entry in entries)
    for kind in ("How do I return", "<summary>", "<ticket>", "That does not fit", "Returns\n"):
        assert any(text.startswith(kind) for text in asked), kind
    assert min(asked["Say yes."], asked["yes"]) >= 2, "trials"
    assert sum(call.tenant == OURS for call in shop.book.admitted) == asked["Say yes."] + asked["yes"]
    for tenant, runs in {"acme": 8, "globex": 6, OURS: 0}.items():
        assert await shop.budgets.spent(tenant) == spent_by(tenant, shop.book, runs=runs)


def spent_by(tenant: str, book: Book, *, runs: int) -> Spent:
    """What a tenant's calls come to; those that nobody counted at their estimates, at the dearer price."""
    own = [(call, usage, PRICES[call.model]) for call, usage in book.settled if call.tenant == tenant != OURS]
    tokens = sum(usage.input_tokens + usage.output_tokens if usage else call.tokens for call, usage, _ in own)
    microcents = sum(
        usage.input_tokens * price["input_usd_cents"] + usage.output_tokens * price["output_usd_cents"]
        if usage
        else call.tokens * max(price.values())
        for call, usage, price in own
    )
    return Spent(tokens, pytest.approx(microcents / 1_000_000), runs)


async def test_a_query_over_the_budget_of_runs_ends_so_and_asks_nobody_while_one_that_has_begun_goes_on(open_shop):
    """Its record is done, with `answer.failed`: no dead letter, and no attempt spent."""
    shop = await open_shop(runs=2)
    for query_id in ("q1", "q2"):
        assert [type(one) for one in await shop.ask("acme", query_id, "Hello")] == [AnswerCompleted]
    asked = len(await shop.journal("a"))
    (failed,) = await shop.ask("acme", "q3", "Hello")
    assert isinstance(failed, AnswerFailed)
    assert failed.code == "budget_exceeded"
    assert len(await shop.journal("a")) == asked
    await shop.budgets.admit(Call("a", CHAT, "acme", 1, run="t\nq2"))
    assert [type(one) for one in await shop.ask("globex", "q1", "Hello")] == [AnswerCompleted], "each tenant has its own"


async def test_queries_of_two_threads_are_two_runs_though_their_ids_are_alike(open_shop):
    """An event's id is its source's own."""
    shop = await open_shop(runs=1)
    assert [type(one) for one in await shop.ask("acme", "q1", "Hello")] == [AnswerCompleted]
    (failed,) = await shop.ask("acme", "q1", "Hello", thread_id="another")
    assert isinstance(failed, AnswerFailed)
    assert failed.code == "budget_exceeded"


async def test_a_query_that_dies_and_comes_again_is_one_run(open_shop):
    shop = await open_shop(runs=1)
    await shop.fault(kind="drop", after_chunks=1, times=3)
    assert [type(one) for one in await shop.ask("acme", "q1", "Hello")] == [AnswerCompleted]
    assert (await shop.budgets.spent("acme")).runs == 1


def test_a_model_without_a_price_is_named_at_the_start_where_a_budget_is_of_money():
    priced = {CHAT: PRICES[CHAT]}
    assert unpriced_models(load_settings(tenant_budgets={"*": {"usd_cents": 5}}, model_prices=priced)) == [VECTORS]
    assert unpriced_models(load_settings(tenant_budgets={"*": {"usd_cents": 5}}, model_prices=PRICES)) == []
    assert unpriced_models(load_settings(tenant_budgets={"*": {"tokens": 5}})) == []


@pytest.mark.parametrize(("address", "whose"), [("http://b/v1", "b"), ("http://a/v1/", "a"), ("http://c/v1", "embeddings")])
def test_embeddings_count_against_the_limit_of_whoever_is_behind_their_address(address: str, whose: str):
    providers = [ProviderEndpoint(name=name, base_url=f"http://{name}/v1", models={CHAT: CHAT}) for name in ("a", "b")]
    assert provider_behind(address, providers) == whose


async def test_without_redis_nobody_is_asked_and_the_record_waits_without_spending_an_attempt(open_shop):
    shop = await open_shop()
    lost = connect(f"redis://127.0.0.1:{free_port()}/0", timeout_s=0.5)
    shop.book.meter = RedisBudgets(lost, {"*": Budget(runs=5)}, {}, SystemClock())
    asked: Any = {"metadata": {"tenant": "acme", "query": "q1"}}
    with pytest.raises(RateLimitedError):
        await shop.models.chat.ainvoke("Hello", asked)
    with pytest.raises(RateLimitedError):
        await shop.models.embedder.embed(["Hello"], tenant="acme")
    assert await shop.journal("a") == []
    await lost.aclose()
