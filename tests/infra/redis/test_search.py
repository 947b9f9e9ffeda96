"""The article index on a real Redis: what comes back, to whom, and what a swap leaves behind."""

import random
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import anyio
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from flows.ports import Passage
from infra.redis.client import connect
from infra.redis.keys import RETIRED_TTL, Keys, milliseconds
from infra.redis.search import RedisArticleIndex
from infra.redis.vectors import tenant_tag
from infra.redis.words import MAX_QUERY_WORDS, STOP_WORDS, query_terms
from topics.errors import ConfigError, OutageError, SupersededError

EAST = [1.0, 0.0, 0.0]
NORTH = [0.0, 1.0, 0.0]


@pytest.fixture
async def index(redis_client: Redis, redis_keys: Keys) -> AsyncIterator[RedisArticleIndex]:
    index = RedisArticleIndex(redis_client, redis_keys, dimensions=3)
    await index.prepare()
    yield index
    await redis_client.execute_command("FT.DROPINDEX", redis_keys.article_index(), "DD")


def passage(
    tenant: str = "acme", article: str = "a1", ordinal: int = 0, *, text: str = "refund a card", revision: int = 1
) -> Passage:
    return Passage(
        tenant=tenant, article_id=article, title="Refunds", title_path="Refunds", text=text, revision=revision, ordinal=ordinal
    )


async def put(index: RedisArticleIndex, *passages: Passage, vector: list[float] = EAST) -> None:
    first = passages[0]
    vectors = [vector] * len(passages)
    await index.replace(tenant=first.tenant, article_id=first.article_id, passages=passages, vectors=vectors)


async def test_a_passage_comes_back_as_it_went_in_from_both_searches(index: RedisArticleIndex) -> None:
    stored = replace(
        passage(text="Grüße 👩‍👩‍👧 refund\nשלח, {x}|y"), title_path="A, b > c | d", url="https://x.example/a?b=c", revision=7
    )
    await put(index, stored)
    for hits in (await index.lexical("acme", "refund", 5), await index.nearest("acme", EAST, 5)):
        assert [replace(stored, score=hit.score) for hit in hits] == [as_passage(hit) for hit in hits]
        assert len(hits) == 1


async def test_similarity_is_the_cosine_and_orders_the_nearest(index: RedisArticleIndex) -> None:
    await put(index, passage(article="east"), vector=EAST)
    await put(index, passage(article="north"), vector=NORTH)
    await put(index, passage(article="between"), vector=[0.6, 0.8, 0.0])
    hits = await index.nearest("acme", NORTH, 2)
    assert [(hit.article_id, round(hit.score, 3)) for hit in hits] == [("north", 1.0), ("between", 0.8)]


async def test_a_word_is_found_whatever_stands_around_it(index: RedisArticleIndex) -> None:
    await put(
        index,
        passage(text="line\nrefund\nline"),
        passage(ordinal=1, text="MAX_REFUND_CENTS"),
        passage(ordinal=2, text="a\u2014refund"),
    )
    assert len(await index.lexical("acme", "refund", 5)) == 3


async def test_words_are_stemmed_and_a_heading_weighs_more(index: RedisArticleIndex) -> None:
    await put(index, replace(passage(article="text", text="something about shipping and more of it"), title_path="Other"))
    await put(index, replace(passage(article="head", text="something else and more of it here"), title_path="Shipping"))
    assert [hit.article_id for hit in await index.lexical("acme", "ships?", 5)] == ["head", "text"]


@pytest.mark.parametrize("other", ["ACME", "acme,other", "acme other", "acme|other", "acm*", "*", "acme}", "äcme"])
async def test_a_tenant_sees_only_its_own_passages_however_names_look(index: RedisArticleIndex, other: str) -> None:
    await put(index, passage("acme", text="refund for acme"))
    await put(index, passage(other, text="refund for other"))
    for tenant in ("acme", other):
        assert {hit.tenant for hit in await index.lexical(tenant, "refund", 10)} == {tenant}
        assert {hit.tenant for hit in await index.nearest(tenant, EAST, 10)} == {tenant}
    assert await index.lexical("stranger", "refund", 10) == []
    assert await index.nearest("stranger", EAST, 10) == []


@pytest.mark.parametrize(
    "words",
    [
        'refund"',
        "refund)",
        "@tenant:{x} refund",
        "refund|*",
        "-refund",
        "(refund",
        "refund=>[KNN 5 @vector $v]",
        "refund\x00",
        "%refund%",
    ],
)
async def test_a_query_language_in_the_text_is_only_words(index: RedisArticleIndex, words: str) -> None:
    await put(index, passage())
    await put(index, passage("other"))
    assert {hit.tenant for hit in await index.lexical("acme", words, 10)} == {"acme"}


@pytest.mark.parametrize("words", ["", "the of and", "!?", "שלום"])
async def test_no_words_find_nothing(index: RedisArticleIndex, words: str) -> None:
    await put(index, passage())
    assert await index.lexical("acme", words, 10) == []


async def test_vectors_come_back_by_heading_and_text_to_their_own_tenant_and_space_alone(index: RedisArticleIndex) -> None:
    first, second = passage(text="Grüße"), replace(passage(ordinal=1, text="refund"), title_path="Refunds > Cards")
    asked = {"tenant": "acme", "article_id": "a1"}
    await index.replace(passages=[first, second], vectors=[EAST, NORTH], content="c", space="m/3", **asked)
    found = await index.embedded(space="m/3", **asked)
    assert {place: list(vector) for place, vector in found.items()} == {
        ("Refunds", "Grüße"): EAST,
        ("Refunds > Cards", "refund"): NORTH,
    }
    assert await index.embedded(space="n/3", **asked) == {}
    assert await index.embedded(tenant="other", article_id="a1", space="m/3") == {}
    await put(index, passage())
    assert await index.embedded(space="m/3", **asked) == {}, "put by one that names no space"
    await index.remove(**asked)
    assert await index.embedded(space="", **asked) == {}


async def test_a_shorter_revision_leaves_nothing_of_the_longer_one(
    index: RedisArticleIndex, redis_client: Redis, redis_keys: Keys
) -> None:
    await put(index, *[passage(ordinal=number, text=f"old words {number}") for number in range(12)])
    await put(index, passage(text="new refund", revision=2))
    assert await index.lexical("acme", "old", 20) == []
    assert [hit.text for hit in await index.nearest("acme", EAST, 20)] == ["new refund"]
    left = [key async for key in redis_client.scan_iter(match=f"{redis_keys.every_passage()}*")]
    assert len(left) == 1


async def test_an_older_revision_never_wins(index: RedisArticleIndex) -> None:
    await put(index, passage(text="new", revision=10))
    with pytest.raises(SupersededError):
        await put(index, passage(text="old", revision=9))
    assert [hit.text for hit in await index.nearest("acme", EAST, 5)] == ["new"]
    await put(index, passage(text="again", revision=10))
    assert [hit.text for hit in await index.nearest("acme", EAST, 5)] == ["again"]


async def test_racing_revisions_end_with_the_highest_and_whole(index: RedisArticleIndex) -> None:
    async def write(revision: int) -> None:
        with suppress(SupersededError):
            await put(
                index, *[passage(ordinal=number, text=f"r{revision}", revision=revision) for number in range(revision % 5 + 1)]
            )

    async with anyio.create_task_group() as group:
        for revision in range(20):
            group.start_soon(write, revision)
    assert [hit.text for hit in await index.nearest("acme", EAST, 50)] == ["r19"] * 5


async def test_remove_takes_all_passages_of_one_article_of_one_tenant(index: RedisArticleIndex) -> None:
    await put(index, passage(), passage(ordinal=1))
    await put(index, passage(article="a2"))
    await put(index, passage("other"))
    assert await index.remove(tenant="acme", article_id="a1") == 2
    assert await index.remove(tenant="acme", article_id="a1") == 0
    assert [hit.article_id for hit in await index.nearest("acme", EAST, 5)] == ["a2"]
    assert len(await index.nearest("other", EAST, 5)) == 1


async def test_ids_with_odd_characters_do_not_meet(index: RedisArticleIndex) -> None:
    for article in ("a:1", "a%3A1", "a", "a}", "{a", "a 1", "ü"):
        await put(index, passage(article=article))
    assert len(await index.nearest("acme", EAST, 20)) == 7
    assert await index.remove(tenant="acme", article_id="a") == 1
    assert len(await index.nearest("acme", EAST, 20)) == 6


async def test_passages_of_another_tenant_are_refused(index: RedisArticleIndex) -> None:
    with pytest.raises(ValueError, match="another tenant"):
        await index.replace(tenant="acme", article_id="a1", passages=[passage("other")], vectors=[EAST])
    with pytest.raises(ValueError, match="vector of 3"):
        await index.replace(tenant="acme", article_id="a1", passages=[passage()], vectors=[[1.0]])
    with pytest.raises(ValueError, match="numbered"):
        await index.replace(tenant="acme", article_id="a1", passages=[passage(ordinal=1)], vectors=[EAST])
    assert await index.nearest("acme", EAST, 5) == []


async def test_many_workers_prepare_at_once(redis_client: Redis, redis_keys: Keys) -> None:
    indexes = [RedisArticleIndex(redis_client, redis_keys, dimensions=3) for _ in range(8)]
    async with anyio.create_task_group() as group:
        for index in indexes:
            group.start_soon(index.prepare)
    with pytest.raises(ConfigError, match="not 4"):
        await RedisArticleIndex(redis_client, redis_keys, dimensions=4).prepare()
    await redis_client.execute_command("FT.DROPINDEX", redis_keys.article_index(), "DD")


async def test_a_missing_index_is_an_outage(redis_client: Redis, redis_keys: Keys) -> None:
    index = RedisArticleIndex(redis_client, redis_keys, dimensions=3)
    for search in (index.lexical("acme", "refund", 5), index.nearest("acme", EAST, 5)):
        with pytest.raises(OutageError) as caught:
            await search
        assert caught.value.reason_code == "search_index_missing"


async def test_a_redis_that_is_gone_is_an_outage() -> None:
    client = connect("redis://127.0.0.1:9/0", timeout_s=0.5)
    index = RedisArticleIndex(client, dimensions=3)
    for call in (index.prepare(), index.lexical("acme", "refund", 5), index.nearest("acme", EAST, 5), put(index, passage())):
        with pytest.raises(OutageError):
            await call
    await client.aclose()


@pytest.mark.parametrize(
    "options", [{"protocol": 2}, {"protocol": 3}, {"protocol": 3, "decode_responses": True}, {"decode_responses": True}]
)
async def test_replies_are_read_under_every_protocol(redis_url: str, redis_keys: Keys, options: dict[str, Any]) -> None:
    client = Redis.from_url(redis_url, **options)
    index = RedisArticleIndex(client, redis_keys, dimensions=3)
    await index.prepare()
    await index.prepare()
    await put(index, passage(), passage(ordinal=1))
    assert len(await index.lexical("acme", "refund", 5)) == 2
    assert [hit.score for hit in await index.nearest("acme", EAST, 5)] == [1.0, 1.0]
    await client.execute_command("FT.DROPINDEX", redis_keys.article_index(), "DD")
    await client.aclose()


TENANTS = st.text(min_size=1).filter(str.strip)


@given(TENANTS, TENANTS)
def test_a_tag_is_plain_hex_and_differs_with_the_tenant(one: str, other: str) -> None:
    one, other = (text.encode(errors="replace").decode() for text in (one, other))
    assert len(tenant_tag(one)) == 32
    assert set(tenant_tag(one)) <= set("0123456789abcdef")
    assert (tenant_tag(one) == tenant_tag(other)) == (one == other)


@given(st.text())
def test_a_query_holds_only_plain_words_each_once(text: str) -> None:
    terms = query_terms(text)
    assert len(terms) == len(set(terms)) <= MAX_QUERY_WORDS
    assert all(term.isascii() and term.isalnum() and term == term.lower() for term in terms)


def test_forms_of_a_word_are_one_term_and_stop_words_none() -> None:
    for forms in ("ship ships shipping shipped", "policy policies", "file files filed filing", "class classes", "issue issues"):
        assert len(query_terms(forms)) == 1, forms
    assert query_terms("string swg21996508 v7 4.1.1") == ["str", "swg21996508", "v7", "4", "1"]
    assert query_terms(" ".join(STOP_WORDS)) == []


def as_passage(hit: Any) -> Passage:
    return Passage(**{name: getattr(hit, name) for name in Passage.__dataclass_fields__})


async def test_the_same_content_is_kept_and_only_its_revision_and_url_change(
    index: RedisArticleIndex, redis_client: Redis, redis_keys: Keys
) -> None:
    first, second = passage(), passage(ordinal=1, text="refund in cash")
    asked = {"tenant": "acme", "article_id": "a1", "content": "c1"}
    assert not await index.keep(passages=[first], **asked)
    await index.replace(passages=[first, second], vectors=[EAST, NORTH], **asked)
    newer = [replace(one, revision=2, url="https://x.example/new") for one in (first, second)]
    assert await index.keep(passages=newer, **asked)
    hits = await index.nearest("acme", EAST, 5)
    assert [(hit.text, hit.revision, hit.url) for hit in hits] == [(one.text, 2, one.url) for one in newer]
    assert not await index.keep(passages=newer, **asked | {"content": "c2"})
    with pytest.raises(SupersededError):  # an older revision has nothing to embed
        await index.keep(passages=[first], **asked | {"content": "c0"})
    assert {hit.revision for hit in await index.lexical("acme", "refund", 5)} == {2}
    await redis_client.delete(f"{redis_keys.passages('acme', 'a1')}1")
    assert not await index.keep(passages=newer, **asked), "a passage is gone: the article is written again"


async def test_passages_say_the_space_of_their_vectors_and_those_of_before_learn_it_when_they_are_kept(
    index: RedisArticleIndex, redis_client: Redis, redis_keys: Keys
) -> None:
    asked: dict[str, Any] = {"tenant": "acme", "article_id": "a1", "passages": [passage()], "content": "c"}
    await index.replace(vectors=[EAST], space="m/3", **asked)
    for _ in range(2):
        assert [hit.space for hit in await index.nearest("acme", EAST, 5)] == ["m/3"]
        assert [hit.space for hit in await index.lexical("acme", "refund", 5)] == ["m/3"]
        await cast("Any", redis_client.hdel(f"{redis_keys.passages('acme', 'a1')}0", "space"))
        assert [hit.space for hit in await index.lexical("acme", "refund", 5)] == [""]
        assert await index.keep(**asked)


async def test_what_is_remembered_of_an_article_that_was_taken_out_goes_with_time_or_when_it_comes_back(
    index: RedisArticleIndex, redis_client: Redis, redis_keys: Keys
) -> None:
    mark = redis_keys.retired("acme", "a1")
    await put(index, passage())
    assert await redis_client.exists(mark) == 0
    await index.remove(tenant="acme", article_id="a1")
    assert 0 < await redis_client.pttl(mark) <= milliseconds(RETIRED_TTL)
    assert await index.count() == 0
    await put(index, passage())
    assert await redis_client.exists(mark) == 0


@pytest.mark.parametrize("tenant", ["", " ", "\n"])
async def test_without_a_tenant_no_branch_asks_and_nothing_is_stored(tenant: str) -> None:
    nowhere = RedisArticleIndex(connect("redis://127.0.0.1:9/0", timeout_s=0.5), dimensions=3)
    mine = passage(tenant)
    calls = (
        nowhere.lexical(tenant, "refund", 5),
        nowhere.lexical(tenant, "", 5),
        nowhere.nearest(tenant, EAST, 5),
        nowhere.keep(tenant=tenant, article_id="a1", passages=[mine], content="c"),
        nowhere.replace(tenant=tenant, article_id="a1", passages=[mine], vectors=[EAST]),
        nowhere.remove(tenant=tenant, article_id="a1"),
    )
    for call in calls:
        with pytest.raises(ValueError, match="tenant"):
            await call


SIGNS = ",.<>{}[]\"':;!@#$%^&*()-+=~|/\\?_ \n\t*\0"
ODD = st.text(alphabet=st.one_of(st.sampled_from(SIGNS), st.sampled_from("abA"), st.characters(codec="utf-8")), max_size=12)


CROWD = [f"a{sign}b" for sign in SIGNS] + ["ab", "AB", "a", "*", "{a|ab}", "a} | @tenant:{ab", "-(-@tenant:{a})", "%a%", "w'ab'"]


# What is wrong with a filter may show in long queries alone: from 21 words on the server reads a union in another way.
SHARED = [f"w{number}" for number in range(40)]
PASSAGES = 3


@pytest.fixture
async def crowded(index: RedisArticleIndex) -> RedisArticleIndex:
    """Passages of nearly the same words for each of many tenants, whose names are one sign of the query language apart."""
    chance = random.Random(11)
    for tenant in CROWD:
        texts = [f"refund a b ab {' '.join(chance.sample(SHARED, 30))}" for _ in range(PASSAGES)]
        await put(index, *[passage(tenant, ordinal=ordinal, text=text) for ordinal, text in enumerate(texts)])
    return index


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tenant=st.one_of(st.sampled_from(CROWD), ODD.filter(str.strip)),
    words=ODD,
    shared=st.lists(st.sampled_from(SHARED), max_size=40, unique=True),
)
@example(tenant="ab", words="", shared=SHARED)
async def test_no_query_and_no_name_of_a_tenant_leads_to_another_s_passages(
    crowded: RedisArticleIndex, tenant: str, words: str, shared: list[str]
) -> None:
    mine = PASSAGES if tenant in CROWD else 0
    assert [hit.tenant for hit in await crowded.lexical(tenant, f"{words} refund {' '.join(shared)}", 500)] == [tenant] * mine
    assert [hit.tenant for hit in await crowded.nearest(tenant, EAST, 500)] == [tenant] * mine
    assert {hit.tenant for hit in await crowded.lexical(tenant, words, 500)} <= {tenant}


async def test_a_long_question_finds_only_the_asking_tenant_s_of_passages_that_are_nearly_the_same(
    index: RedisArticleIndex,
) -> None:
    # Guards P8. An exclusion of the other tenants at each word, `-(-@tenant:{x})`, let theirs through in exactly this shape.
    tenants, chance = ("acme", "ACME", "acme,globex", "globex"), random.Random(7)
    words = [f"w{number}" for number in range(60)]
    for article in range(12):
        shared = [" ".join(chance.choices(words, k=30)) for _ in range(PASSAGES)]
        for tenant in tenants:
            texts = [f"{text} {chance.choice(words)}" for text in shared]
            await put(index, *[passage(tenant, f"a{article}", at, text=text) for at, text in enumerate(texts)])
    for count in (1, 8, 20, 21, 25, 40, 60):
        for tenant in tenants:
            hits = await index.lexical(tenant, " ".join(chance.sample(words, count)), 500)
            assert hits
            assert {hit.tenant for hit in hits} == {tenant}, count


async def test_a_query_that_names_another_tenant_finds_the_asking_one_s(crowded: RedisArticleIndex) -> None:
    for tenant, other in pairwise(CROWD):
        hits = await crowded.lexical(tenant, f"refund @tenant:{{{tenant_tag(other)}}} {other}", 500)
        assert [hit.tenant for hit in hits] == [tenant] * PASSAGES


async def test_the_filter_takes_nothing_from_a_passage_s_score(
    index: RedisArticleIndex, redis_client: Redis, redis_keys: Keys
) -> None:
    # Beside a union of up to 20 words, `@tenant:{x} @words:(a|b)`, the server counts some of a passage's words as absent.
    chance = random.Random(7)
    words = [f"w{number}" for number in range(200)]
    for at in range(120):
        text = " ".join(chance.choices(words, weights=range(200, 0, -1), k=chance.randint(10, 80)))
        await put(index, passage(article=f"a{at}", text=text))
    for count in (3, 10, 10, 10, 20, 21, 40):
        asked = chance.sample(words, count)
        query = f"@words:({'|'.join(asked)})"
        options = ("VERBATIM", "SCORER", "BM25STD", "WITHSCORES", "RETURN", 1, "article_id", "LIMIT", 0, 200, "DIALECT", 2)
        reply: Any = await redis_client.execute_command("FT.SEARCH", redis_keys.article_index(), query, *options)
        unfiltered = {fields[1].decode(): float(score) for score, fields in zip(reply[2::3], reply[3::3], strict=True)}
        found = {hit.article_id: hit.score for hit in await index.lexical("acme", " ".join(asked), 200)}
        assert sorted(found) == sorted(unfiltered)
        assert all(found[one] >= score - 1e-6 for one, score in unfiltered.items()), count
