"""The audit of tenants: it sees a leak wherever one can be, and does not pass a place that it did not look at."""

from collections.abc import Sequence
from typing import Any

import pytest
from redis.asyncio import Redis

from bench.figures import places, published, tenants
from bench.figures.bounds import FigureError
from bench.figures.marks import PUBLISHING, TENANTS, Tally, edition, is_foreign, mark_of
from bench.figures.places import LEAKING, NOBODYS, OWNED
from bench.figures.stored import owner_of, stored_texts
from bench.figures.streams import Heard
from bench.figures.tenants import Leaks, WatchedBranches
from bench.figures.unguarded import BOTH, UnfilteredIndex, UnguardedExamples, UnguardedRetriever, no_guards
from flows.agent.state import ThreadRef
from flows.retrieval import HybridRetriever
from infra.redis.examples import RedisExamples
from infra.redis.keys import Keys
from infra.redis.search import Hit
from topics.envelope import Event
from topics.events import AnswerCompleted, AnswerDelta, ArticlePublished, Citation, Payload
from topics.example import Example
from topics.records import RawRecord
from workers import parts

FOREIGN = mark_of("globex")
CLEAN = Leaks(queries=10, passages=500)


def tally(**foreign: int) -> Tally:
    found = Tally()
    found.own.update(dict.fromkeys(OWNED, 5))
    found.foreign.update(foreign)
    return found


LEAKED = tally(**dict.fromkeys(LEAKING, 3))


def heard(*payloads: Payload) -> Heard:
    found = Heard()
    for payload in payloads:
        found.note(Event(f"{payload.TYPE}:{payload.identity()}", "w", "acme", "k", payload, RawRecord("answers", 0, 0, None, b"")))
    return found


def delta(attempt: int, sequence: int, text: str) -> AnswerDelta:
    return AnswerDelta(thread_id="t", query_id="q", attempt=attempt, sequence=sequence, text=text)


def test_every_sentence_of_an_edition_tells_whose_it_is():
    article = edition(ArticlePublished(article_id="a", title="T", body="One. Two. Three."), "acme")
    assert article.article_id == "a"
    assert article.body.count(mark_of("acme")) == 3
    assert [tenant for tenant in TENANTS if is_foreign(tenant, article.body)] == [one for one in TENANTS if one != "acme"]


def test_the_owner_s_words_are_no_leak_and_what_is_nobody_s_holds_none():
    found = Tally()
    found.look("redis", "acme", mark_of("acme"))
    found.look("redis", "ACME", mark_of("acme"))
    found.look("redis", None, mark_of("acme"))
    found.look("redis", "acme", "nothing")
    assert (found.own["redis"], found.foreign["redis"]) == (1, 2)


@pytest.mark.parametrize("place", [*OWNED, *NOBODYS])
def test_one_text_of_another_tenant_in_any_place_fails_the_audit(place: str):
    assert published.judge(tally(), LEAKED, asked=10, control=5)["leaks_published"] == 0
    with pytest.raises(FigureError, match="nothing_leaks_into_what_is_published"):
        published.judge(tally(**{place: 1}), LEAKED, asked=10, control=5)


@pytest.mark.parametrize("place", OWNED)
def test_a_place_where_not_even_one_s_own_words_were_found_was_not_looked_at(place: str):
    found = tally()
    found.own[place] = 0
    with pytest.raises(FigureError, match="every_place_was_looked_at"):
        published.judge(found, LEAKED, asked=10, control=5)


@pytest.mark.parametrize("place", LEAKING)
def test_a_place_that_shows_nothing_without_guards_could_not_have_shown_a_leak(place: str):
    leaked = tally(**dict.fromkeys(LEAKING, 3))
    leaked.foreign[place] = 0
    with pytest.raises(FigureError, match="without_guards_every_place_leaks"):
        published.judge(tally(), leaked, asked=10, control=5)


def test_a_mark_is_seen_in_a_void_attempt_between_two_deltas_and_in_a_citation():
    citation = Citation(marker=1, article_id="a", title="T", passage=FOREIGN)
    found, ended = Tally(), AnswerCompleted(thread_id="t", query_id="q", attempt=2000, text="Yes. [1]", citations=(citation,))
    half = len(FOREIGN) // 2
    said = heard(delta(1000, 0, FOREIGN[:half]), delta(1000, 1, FOREIGN[half:]), delta(2000, 0, "Yes. [1]"), ended)
    places.look_at_answer(found, said, "acme", "q")
    assert dict(+found.foreign) == {"stream": 1, "citations": 1}


def test_every_tenant_asks_the_same_under_the_same_ids():
    asked = list(published.questions("x", ["one", "two"], 12))
    assert len(asked) == 12
    alike = {tenant: [(one.thread_id, one.query_id, one.text) for one in asked if one.tenant == tenant] for tenant in PUBLISHING}
    assert alike["acme"] == alike["ACME"] == alike["globex"]


def test_a_key_names_its_tenant_or_one_of_its_threads_or_is_nobody_s():
    keys, thread = Keys("sluice"), ThreadRef("ACME", "t-1")
    owners = {"acme": "acme", "acme,globex": "acme,globex", thread.checkpoint_id: "ACME"}
    assert owner_of(keys.passages("acme,globex", "a:1") + "0", owners) == "acme,globex"
    assert owner_of(keys.checkpoints(thread.checkpoint_id) + "x", owners) == "ACME"
    assert owner_of(keys.approval("acme", "7"), owners) == "acme"
    assert owner_of(keys.chain_head("answers", "acme"), owners) == "acme"
    assert owner_of(keys.claim("g", "1"), owners) is None


class OneKey:
    """A Redis with one key."""

    def __init__(self, kind: bytes, value: Any = None) -> None:
        self.kind, self.value = kind, value

    async def scan_iter(self, **_options: Any) -> Any:
        yield b"k"

    async def type(self, _key: bytes) -> bytes:
        return self.kind

    async def hgetall(self, _key: bytes) -> Any:
        return self.value


async def test_fields_and_values_are_read_and_a_key_of_an_unknown_type_is_not_passed_over():
    read = [one async for one in stored_texts(OneKey(b"hash", {b"f": b"v", b"g": b"\xff"}))]
    assert read == [("k", "f\nv\ng\n�")]
    with pytest.raises(KeyError):
        [one async for one in stored_texts(OneKey(b"stream"))]


class EveryTenantsPassage:
    """An index with one passage a tenant."""

    async def lexical(self, tenant: str, words: str, limit: int) -> Sequence[Hit]:
        return [Hit(tenant, f"of-{tenant}", "T", "", f"{words} {mark_of(tenant)} {limit}", 1, 0, None, 0.9)]

    async def nearest(self, tenant: str, vector: Sequence[float], limit: int) -> Sequence[Hit]:
        return await self.lexical(tenant, f"near {len(vector)}", limit)


class Embedder:
    async def embed(self, texts: Sequence[str], **_others: Any) -> Sequence[Sequence[float]]:
        return [[1.0] for _ in texts]


INDEX: Any = EveryTenantsPassage()
EMBEDDER: Any = Embedder()


@pytest.mark.parametrize("branch", BOTH)
async def test_an_index_leaks_in_the_branch_that_lost_its_filter_and_in_no_other(branch: Any):
    leaks = Leaks()
    retriever = HybridRetriever(branches=WatchedBranches(UnfilteredIndex(INDEX, without=[branch]), leaks), embedder=EMBEDDER)
    found = await retriever.search(tenant="acme", query="how", limit=50)
    assert (leaks.of(branch), leaks.total) == (3, 3)
    assert {one.tenant for one in found} == {"acme"}, "the last check holds"


async def test_without_guards_a_process_is_built_with_a_retriever_that_gives_anybody_s_words_away():
    with no_guards():
        assert (parts.HybridRetriever, parts.RedisExamples) == (UnguardedRetriever, UnguardedExamples)
        retriever = parts.HybridRetriever(branches=INDEX, embedder=EMBEDDER)
    assert (parts.HybridRetriever, parts.RedisExamples) == (HybridRetriever, RedisExamples)
    found = await retriever.search(tenant="acme", query="how", limit=50)
    assert {one.tenant for one in found} == {"acme"}, "the agent would drop them by any other name"
    assert any(is_foreign("acme", one.text) for one in found)


async def test_examples_without_guards_are_those_of_other_tenants_too(monkeypatch: pytest.MonkeyPatch):
    async def own(_store: RedisExamples, tenant: str, _vector: Sequence[float], limit: int) -> Sequence[Example]:
        return [Example(tenant, str(number), "", mark_of(tenant), "i", "low", False, "") for number in range(limit)]

    monkeypatch.setattr(RedisExamples, "nearest", own)
    client: Any = Redis()
    found = await UnguardedExamples(client).nearest("ACME", [1.0], 5)
    assert [one.tenant for one in found] == ["ACME"] * 5, "triage would drop them by any other name"
    assert sum(is_foreign("ACME", one.body) for one in found) == 4


def test_a_leak_of_a_branch_or_past_the_last_check_fails_the_audit_and_so_does_a_blind_control():
    leaking = {name: Leaks(lexical=9, nearest=9) for name in BOTH}
    shown = {name: Leaks(lexical=9, nearest=9, fused=4, tool=1) for name in BOTH}
    assert tenants.judge(CLEAN, leaking, shown)["leaks_control_branches"] == 10
    for audit, checked, control, broken in (
        (Leaks(queries=10, passages=500, lexical=1), leaking, shown, "nothing_leaks"),
        (Leaks(queries=10), leaking, shown, "something_was_found"),
        (CLEAN, {**leaking, "lexical": Leaks(nearest=9)}, shown, "each_branch_leaks_without_its_filter"),
        (CLEAN, {**leaking, "nearest": Leaks(nearest=9, tool=1)}, shown, "the_last_check_holds"),
        (CLEAN, leaking, {**shown, "nearest": Leaks(nearest=9)}, "without_both_it_is_seen"),
    ):
        with pytest.raises(FigureError, match=broken):
            tenants.judge(audit, checked, control)
