"""The search index over open approvals: tenant and tool as tags, age and amount as numbers.

A tag compares without case and splits at commas, so tenant and tool go in as the hex of a hash.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Final, cast

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from infra.redis.client import outages
from infra.redis.keys import Keys
from topics.approval_state import ApprovalQuery
from topics.errors import OutageError

_SCHEMA: Final = ("tenant", "TAG", "tool", "TAG", "opened", "NUMERIC", "SORTABLE", "amount", "NUMERIC", "SORTABLE")


class ApprovalIndex:
    """What finds open approvals by their fields. It holds the hashes that the registry writes, and no copy of its own."""

    def __init__(self, client: Redis, keys: Keys) -> None:
        self._client = cast("Any", client)
        self._name = keys.approval_index()
        self._prefix = keys.every_approval()

    async def prepare(self) -> None:
        """Create the index if there is none; any number of workers may do it at once. What is there is taken in meanwhile.

        Raises:
            OutageError: Redis does not answer.
        """
        with outages():
            try:
                # A closed approval keeps its hash for a while, without the fields that are searched.
                source = ("ON", "HASH", "PREFIX", 1, self._prefix, "STOPWORDS", 0, "SCHEMA", *_SCHEMA)
                await self._client.execute_command("FT.CREATE", self._name, *source)
            except ResponseError as error:
                if "already exists" not in str(error):
                    raise

    async def find(self, query: ApprovalQuery, *, since: str, until: str) -> list[tuple[str, int]]:
        """Keys of open approvals that match, oldest first, one more than asked for, with when each was opened.

        Args:
            query: The tenant's tag comes before all other conditions.
            since: Microseconds, as a bound of a range.
            until: The same.

        Raises:
            OutageError: No answer, or there is no index.
        """
        text = _query(query, since=since, until=until)
        page = ("SORTBY", "opened", "ASC", "RETURN", 1, "opened", "LIMIT", 0, query.limit + 1, "DIALECT", 2)
        with outages():
            try:
                reply = await self._client.execute_command("FT.SEARCH", self._name, text, *page)
            except ResponseError as error:
                if "no such index" in str(error).lower():
                    raise OutageError("the index of approvals is missing", code="search_index_missing") from error
                raise
        rows = cast("Sequence[Any]", reply)[1:]
        return [(key.decode(), int(fields[1])) for key, fields in zip(rows[::2], rows[1::2], strict=True)]


def tags(tenant: str, tool: str) -> tuple[str, str]:
    """Tenant and tool as they are in the index: hex digits, which no tag rule changes."""
    return _tag(tenant), _tag(tool)


def _query(query: ApprovalQuery, *, since: str, until: str) -> str:
    """Only hex digits and numbers of ours reach the query language."""
    parts = [] if query.tenant is None else [f"@tenant:{{{_tag(query.tenant)}}}"]
    if query.tool is not None:
        parts.append(f"@tool:{{{_tag(query.tool)}}}")
    if query.min_amount is not None or query.max_amount is not None:
        low = "-inf" if query.min_amount is None else int(query.min_amount)
        high = "+inf" if query.max_amount is None else int(query.max_amount)
        parts.append(f"@amount:[{low} {high}]")
    return " ".join([*parts, f"@opened:[{since} {until}]"])


def _tag(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()[:32]
