"""Passages of help articles in Redis: full text and vectors, each search behind the tenant's tag."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from redis.asyncio import Redis

from infra.redis.client import Script
from infra.redis.keys import RETIRED_TTL, Keys, milliseconds
from infra.redis.vectors import blob, create_index, failures, numbers_of, tenant_tag, text_of
from infra.redis.words import query_terms, significant
from topics.errors import SupersededError
from topics.origin import UNKNOWN_ORIGIN, Origin

_FIELDS: Final = ("tenant_name", "article_id", "title", "title_path", "text", "revision", "ordinal", "url", "space")

# KEYS: the article's card, what its passages' keys begin with, what stays of it once it is taken out. There is a card or that.
# ARGV: revision, or nothing of an article that is withdrawn; when the record was written; 1 for a replay.
_STAYS: Final = """
local revision, written = tonumber(ARGV[1]), tonumber(ARGV[2])
local there = redis.call('HMGET', KEYS[1], 'revision', 'written')
if not there[1] then there = redis.call('HMGET', KEYS[3], 'revision', 'written') end
local newest = tonumber(there[1] or '')
if revision and newest and newest > revision then return -1 end
local is_higher = revision and newest and revision > newest
if ARGV[3] == '1' and written < tonumber(there[2] or '0') and not is_higher then return -1 end
"""
# KEYS, ARGV as above; then hash of the content, space of the vectors, values a passage, and all fields and values.
# The card remembers how many passages there are, so that all old ones go, whatever the new number is.
_REPLACE: Final = f"""{_STAYS}
for ordinal = 0, tonumber(redis.call('HGET', KEYS[1], 'passages') or '0') - 1 do redis.call('DEL', KEYS[2] .. ordinal) end
local width = tonumber(ARGV[6])
local count = (#ARGV - 6) / width
for ordinal = 0, count - 1 do
  redis.call('HSET', KEYS[2] .. ordinal, unpack(ARGV, 7 + ordinal * width, 6 + (ordinal + 1) * width))
end
redis.call(
  'HSET', KEYS[1], 'revision', ARGV[1], 'written', ARGV[2], 'passages', count, 'content', ARGV[4], 'space', ARGV[5]
)
redis.call('DEL', KEYS[3])
return count
"""
# KEYS as above. ARGV: space of the vectors.
_EMBEDDED: Final = """
local known = redis.call('HMGET', KEYS[1], 'passages', 'space')
local found = {}
if known[2] ~= ARGV[1] then return found end
for ordinal = 0, tonumber(known[1]) - 1 do
  local fields = redis.call('HMGET', KEYS[2] .. ordinal, 'title_path', 'text', 'vector')
  if fields[3] then table.insert(found, fields) end
end
return found
"""
# KEYS, ARGV as for what stays; then hash of the content, url. Passages of before their space was told learn it here.
_KEEP: Final = f"""{_STAYS}
local known = redis.call('HMGET', KEYS[1], 'passages', 'content', 'space')
if known[2] ~= ARGV[4] then return 0 end
for ordinal = 0, tonumber(known[1]) - 1 do
  if redis.call('EXISTS', KEYS[2] .. ordinal) == 0 then return 0 end
end
for ordinal = 0, tonumber(known[1]) - 1 do
  redis.call('HSET', KEYS[2] .. ordinal, 'revision', ARGV[1], 'url', ARGV[5], 'space', known[3] or '')
end
redis.call('HSET', KEYS[1], 'revision', ARGV[1], 'written', ARGV[2])
return 1
"""
# KEYS, ARGV as for what stays; then milliseconds to remember it for. What goes comes first: a full server takes the rest then too.
_REMOVE: Final = f"""{_STAYS}
local count = tonumber(redis.call('HGET', KEYS[1], 'passages') or '0')
for ordinal = 0, count - 1 do redis.call('DEL', KEYS[2] .. ordinal) end
redis.call('DEL', KEYS[1], KEYS[3])
redis.call('HSET', KEYS[3], 'written', ARGV[2])
if revision then redis.call('HSET', KEYS[3], 'revision', ARGV[1]) end
redis.call('PEXPIRE', KEYS[3], ARGV[4])
return count
"""


class _StoredPassage(Protocol):
    """What a passage must have to be stored."""

    @property
    def tenant(self) -> str: ...
    @property
    def article_id(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def title_path(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def revision(self) -> int: ...
    @property
    def ordinal(self) -> int: ...
    @property
    def url(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that was found. `score`: BM25 of a lexical search, cosine similarity of a nearest search.

    `space`: of its vector; empty when it is not known.
    """

    tenant: str
    article_id: str
    title: str
    title_path: str
    text: str
    revision: int
    ordinal: int
    url: str | None
    score: float
    space: str = ""


class RedisArticleIndex:
    """Where passages are kept, and the two searches over them. `prepare` it once before use.

    What a newer record said stays: `SupersededError`, and nothing was changed (`flows/ports.ArticleIndex`).

    Args:
        dimensions: Floats in a vector. Another number needs another prefix, and a new run over the articles topic.
    """

    def __init__(self, client: Redis, keys: Keys | None = None, *, dimensions: int = 384) -> None:
        self._client = cast("Any", client)
        self._keys = keys or Keys()
        self._dimensions = dimensions
        self._replace = Script(client, _REPLACE)
        self._keep = Script(client, _KEEP)
        self._embedded = Script(client, _EMBEDDED)
        self._remove = Script(client, _REMOVE)

    async def prepare(self) -> None:
        """Create the index if there is none; any number of workers may do it at once.

        Raises:
            ConfigError: There is one for vectors of another length.
            OutageError: Redis does not answer.
        """
        index = self._keys.article_index()
        await create_index(self._client, _create(index, self._keys.every_passage(), self._dimensions), dimensions=self._dimensions)

    async def keep(
        self,
        *,
        tenant: str,
        article_id: str,
        passages: Sequence[_StoredPassage],
        content: str,
        origin: Origin = UNKNOWN_ORIGIN,
    ) -> bool:
        """Whether nothing has to be embedded, since the index holds this content. Revision and url become those of `passages`.

        Raises:
            ValueError: There is no tenant, or a passage belongs elsewhere. Nothing was changed.
            SupersededError: What the index holds is newer. Nothing was changed.
            OutageError: No answer. The article is as before or as asked, never between.
        """
        self._check(tenant, article_id, passages)
        arguments = [*_said_by(passages[0].revision, origin), content, passages[0].url or ""]
        with failures():
            return bool(_changed(await self._keep(self._keys_of(tenant, article_id), arguments)))

    async def embedded(self, *, tenant: str, article_id: str, space: str) -> Mapping[tuple[str, str], Sequence[float]]:
        """The vectors of an article by title path and text, as far as they are of this space.

        Raises:
            ValueError: There is no tenant.
            OutageError: No answer.
        """
        with failures():
            found = await self._embedded(self._keys_of(tenant, article_id), [space])
        return {(text_of(path), text_of(text)): numbers_of(vector) for path, text, vector in found}

    async def replace(
        self,
        *,
        tenant: str,
        article_id: str,
        passages: Sequence[_StoredPassage],
        vectors: Sequence[Sequence[float]],
        content: str = "",
        space: str = "",
        origin: Origin = UNKNOWN_ORIGIN,
    ) -> None:
        """Swap all passages of an article in one step. `vectors[i]` belongs to `passages[i]`; all are of one space.

        Raises:
            ValueError: Lengths differ, there is no tenant, or a passage is of another tenant or article. Nothing was stored.
            SupersededError: What the index holds is newer. Nothing was stored.
            OutageError: No answer. The article is as before or as asked, never between.
        """
        if len(passages) != len(vectors) or any(len(vector) != self._dimensions for vector in vectors):
            raise ValueError(f"each passage needs a vector of {self._dimensions} floats")
        self._check(tenant, article_id, passages)
        rows = [_row(passage, vector, space) for passage, vector in zip(passages, vectors, strict=True)]
        said = _said_by(passages[0].revision, origin)
        arguments = [*said, content, space, len(rows[0]), *(value for row in rows for value in row)]
        with failures():
            _changed(await self._replace(self._keys_of(tenant, article_id), arguments))

    async def remove(self, *, tenant: str, article_id: str, origin: Origin = UNKNOWN_ORIGIN, revision: int | None = None) -> int:
        """Take an article out, and remember when. Returns how many passages there were.

        Args:
            revision: The one that has no text; None when the article is withdrawn, whatever its revision.

        Raises:
            SupersededError: What the index holds is newer. Nothing was changed.
            OutageError: No answer. It is out or in, never between.
        """
        arguments = [*_said_by(revision, origin), milliseconds(RETIRED_TTL)]
        with failures():
            return _changed(await self._remove(self._keys_of(tenant, article_id), arguments))

    async def count(self) -> int:
        """How many articles are in, over all tenants.

        Raises:
            OutageError: No answer.
        """
        with failures():
            return len([card async for card in self._client.scan_iter(match=self._keys.every_article(), count=1000)])

    async def lexical(self, tenant: str, words: str, limit: int) -> Sequence[Hit]:
        """Passages of the tenant that share words with a text, best first. Only its letters and digits reach the query.

        Raises:
            OutageError, UnavailableError: No answer, or a failed search.
        """
        owner = tenant_tag(tenant)
        terms = query_terms(words)
        if not terms:
            return []
        # The filter stands at each word: beside a union, passages lose part of their score (4 points of recall on judged sets).
        # It must be the plain tag: the exclusion of all others, which would add no score, let passages of others through.
        query = "|".join(f"(@tenant:{{{owner}}} @words:{term})" for term in terms)
        return await self._search(query, "VERBATIM", "SCORER", "BM25STD", "WITHSCORES", *_fields(), "LIMIT", 0, limit)

    async def nearest(self, tenant: str, vector: Sequence[float], limit: int) -> Sequence[Hit]:
        """Passages of the tenant by cosine similarity, best first; the query's tag is applied before the distance.

        Raises:
            OutageError, UnavailableError: No answer, or a failed search.
        """
        query = f"(@tenant:{{{tenant_tag(tenant)}}})=>[KNN $count @vector $vector AS distance]"
        parameters = ("PARAMS", 4, "count", limit, "vector", blob(vector))
        order = ("SORTBY", "distance", "ASC", "LIMIT", 0, limit)
        return await self._search(query, *parameters, *order, *_fields("distance"))

    async def _search(self, query: str, *options: Any) -> Sequence[Hit]:
        with failures():
            reply = await self._client.execute_command("FT.SEARCH", self._keys.article_index(), query, *options, "DIALECT", 2)
            return _hits(reply, scored="WITHSCORES" in options)

    def _keys_of(self, tenant: str, article_id: str) -> Sequence[str]:
        tenant_tag(tenant)
        keys = self._keys
        return [keys.article(tenant, article_id), keys.passages(tenant, article_id), keys.retired(tenant, article_id)]

    def _check(self, tenant: str, article_id: str, passages: Sequence[_StoredPassage]) -> None:
        if not passages or any((passage.tenant, passage.article_id) != (tenant, article_id) for passage in passages):
            raise ValueError("a passage belongs to another tenant or article")
        if [passage.ordinal for passage in passages] != list(range(len(passages))):
            raise ValueError("passages must be numbered from 0")


def _create(index: str, prefix: str, dimensions: int) -> Sequence[str | int]:
    source = ("FT.CREATE", index, "ON", "HASH", "PREFIX", 1, prefix, "STOPWORDS", 0, "SCHEMA")
    texts = ("tenant", "TAG", "words", "TEXT", "NOSTEM")
    vector = ("vector", "VECTOR", "HNSW", 8, "TYPE", "FLOAT32", "DIM", dimensions, "DISTANCE_METRIC", "COSINE", "EF_RUNTIME", 100)
    return (*source, *texts, *vector)


def _said_by(revision: int | None, origin: Origin) -> tuple[str | int, str | int, str | int]:
    return "" if revision is None else revision, origin.written_at_ms, int(origin.is_replay)


def _changed(answer: Any) -> int:
    if int(answer) < 0:
        raise SupersededError("what the index holds of the article is newer")
    return int(answer)


def _fields(*more: str) -> Sequence[str | int]:
    names = (*_FIELDS, *more)
    return ("RETURN", len(names), *names)


def _row(passage: _StoredPassage, vector: Sequence[float], space: str) -> list[str | bytes | int]:
    values: dict[str, str | bytes | int] = {
        "tenant": tenant_tag(passage.tenant),
        "tenant_name": passage.tenant,
        "article_id": passage.article_id,
        "title": passage.title,
        "title_path": passage.title_path,
        "text": passage.text,
        # The server's own tokenizer does not split at line ends or underscores, so words are cut here as in a query.
        # Headings stand twice: its BM25 ignores the weight of a field.
        "words": " ".join(significant(f"{passage.title_path}\n{passage.title_path}\n{passage.text}")),
        "revision": passage.revision,
        "ordinal": passage.ordinal,
        "url": passage.url or "",
        "space": space,
        "vector": blob(vector),
    }
    return [part for pair in values.items() for part in pair]


def _hits(reply: Any, *, scored: bool) -> list[Hit]:
    """Read both shapes of a search reply: the flat list of RESP2 and the map of RESP3."""
    if isinstance(reply, Mapping):
        found = {text_of(name): value for name, value in cast("Mapping[Any, Any]", reply).items()}
        rows = [{text_of(name): value for name, value in row.items()} for row in found["results"]]
        return [_hit(row["extra_attributes"], row.get("score")) for row in rows]
    rows = list(cast("Sequence[Any]", reply))[1:]
    width = 3 if scored else 2
    return [_hit(rows[at + width - 1], rows[at + 1] if scored else None) for at in range(0, len(rows), width)]


def _hit(fields: Any, score: Any) -> Hit:
    pairs = cast("Mapping[Any, Any]", fields).items() if isinstance(fields, Mapping) else _pairs(fields)
    values = {text_of(name): text_of(value) for name, value in pairs}
    return Hit(
        tenant=values["tenant_name"],
        article_id=values["article_id"],
        title=values["title"],
        title_path=values["title_path"],
        text=values["text"],
        revision=int(values["revision"]),
        ordinal=int(values["ordinal"]),
        url=values["url"] or None,
        score=1.0 - float(values["distance"]) if "distance" in values else float(text_of(score)),
        space=values.get("space", ""),
    )


def _pairs(flat: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    return zip(flat[::2], flat[1::2], strict=True)
