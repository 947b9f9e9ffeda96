"""What people said of answers, in Redis: beside the thread, and never in its checkpoint, which only a lease's holder writes."""

import json
from collections.abc import Sequence
from typing import Any, Final, cast

from redis.asyncio import Redis

from infra.redis.client import Script, outages, wait_durable
from infra.redis.keys import FEEDBACK_TTL, Keys, milliseconds
from topics.attributes import instant
from topics.feedback import Feedback

KEPT: Final = 100

# An event that is delivered again is the same member. KEYS: feedback. ARGV: score, member, time to live, how many stay.
ATTACH: Final = """
local added = redis.call('ZADD', KEYS[1], 'NX', ARGV[1], ARGV[2])
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - tonumber(ARGV[4]))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return added
"""


class RedisFeedback:
    """Feedback of threads, the newest `KEPT` of each, for `FEEDBACK_TTL` after the last one.

    Every call raises OutageError when Redis does not answer; whether it took effect is then unknown, and repeating it is safe.
    """

    def __init__(self, client: Redis, *, keys: Keys | None = None) -> None:
        self._client = client
        self._keys = keys or Keys()
        self._attach = Script(client, ATTACH)

    async def attach(self, thread: str, feedback: Feedback) -> bool:
        """Keep one, once per id; of very many, the newest. On disk on return. False when it was there."""
        score = 0.0 if feedback.at is None else feedback.at.timestamp()
        key = self._keys.feedback(thread)
        added = await self._attach([key], [repr(score), _packed(feedback), milliseconds(FEEDBACK_TTL), KEPT])
        await wait_durable(self._client, keys=self._keys)
        return bool(added)

    async def of(self, thread: str) -> Sequence[Feedback]:
        """All that is kept, oldest first."""
        with outages():
            found = await cast("Any", self._client).zrange(self._keys.feedback(thread), 0, -1)
        return [_unpacked(one) for one in found]

    async def remember_trace(self, thread: str, query_id: str, traceparent: str) -> None:
        """Keep where a question's trace is; the first word stands."""
        with outages():
            key = self._keys.trace(thread, query_id)
            await self._client.set(key, traceparent, nx=True, px=milliseconds(FEEDBACK_TTL))

    async def trace_of(self, thread: str, query_id: str) -> str | None:
        """The trace of a question, or None when nobody told it or it is long ago."""
        with outages():
            found: Any = await self._client.get(self._keys.trace(thread, query_id))
        return None if found is None else found.decode()


def _packed(feedback: Feedback) -> str:
    """The same bytes for the same feedback, whoever keeps it again."""
    at = None if feedback.at is None else feedback.at.isoformat()
    return json.dumps([feedback.feedback_id, feedback.query_id, feedback.thumb, feedback.note, at], ensure_ascii=False)


def _unpacked(member: bytes) -> Feedback:
    feedback_id, query_id, thumb, note, at = json.loads(member)
    return Feedback(feedback_id, query_id, thumb, note, None if at is None else instant(at))
