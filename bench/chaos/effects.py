"""The outside world: a server that performs effects and answers as a model, and a journal that is the truth about both.

One JSON line asks, one answers. `write` effects are applied once for each id, as a payment service does it; `irreversible` ones
happen as often as they are called. The model counts its calls in a window that slides, and refuses what is above its limit.
`python -m bench.chaos.effects PORT FOLDER`.
"""

import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import orjson
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from bench.chaos.facts import Called, EffectKind, Performed
from bench.chaos.ledger import Ledger, now_ns
from infra.local.model_server.limits import Limit, Limiter
from infra.local.ports import HOST
from topics.errors import OutageError, RateLimitedError, UnavailableError

CALL_WITHIN_S: Final = 5.0
LINE_BYTES: Final = 65_536
NS: Final = 1_000_000_000

Mood = dict[str, Any]


@dataclass(slots=True)
class OutsideWorld:
    """What the outside world remembers. `mood`: `ok`, `outage`, or `busy` with `retry_after_s`."""

    ledger: Ledger
    mood: Mood = field(default_factory=lambda: {"status": "ok"})
    calls: Counter[str] = field(default_factory=Counter[str])
    applied: set[str] = field(default_factory=set[str])
    model: Limiter = field(default_factory=Limiter)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked, write it down, then say so."""
        if request["ask"] == "mood":
            self.mood = request["mood"]
            return {"status": "ok"}
        if request["ask"] == "limit":
            self.model = Limiter(Limit.model_validate(request["limit"]))
            return {"status": "ok"}
        if self.mood["status"] != "ok":
            return self.mood
        if request["ask"] == "model":
            return self._call(request)
        return self._perform(request["effect_id"], request)

    def _call(self, request: dict[str, Any]) -> dict[str, Any]:
        at_ns = now_ns()
        wait_s = self.model.wait_s(at_ns / NS)
        self.ledger.write(Called(at_ns=at_ns, who=request["who"], event_id=request["event_id"], refused=wait_s > 0))
        return {"status": "busy", "retry_after_s": wait_s} if wait_s else {"status": "ok"}

    def _perform(self, effect_id: str, request: dict[str, Any]) -> dict[str, Any]:
        self.calls[effect_id] += 1
        refused = self.calls[effect_id] <= request["fails"]
        repeated = request["kind"] == "write" and effect_id in self.applied
        if not refused:
            self.applied.add(effect_id)
        self.ledger.write(
            Performed(
                at_ns=now_ns(),
                who=request["who"],
                event_id=request["event_id"],
                key=request["key"],
                kind=request["kind"],
                fence=request["fence"],
                applied=not refused and not repeated,
            )
        )
        return {"status": "unavailable" if refused else "ok"}


async def serve(port: int, folder: Path) -> None:
    """Answer until the process ends."""
    with Ledger(folder, "effects") as ledger:
        world = OutsideWorld(ledger)
        async with await anyio.create_tcp_listener(local_host=HOST, local_port=port) as listener:
            await listener.serve(lambda stream: _talk(world, stream))


async def _talk(world: OutsideWorld, stream: SocketStream) -> None:
    lines = BufferedByteReceiveStream(stream)
    async with stream:
        try:
            while True:
                request = orjson.loads(await lines.receive_until(b"\n", LINE_BYTES))
                await stream.send(orjson.dumps(world.answer(request)) + b"\n")
        except (
            anyio.IncompleteRead,
            anyio.EndOfStream,
            anyio.BrokenResourceError,
            anyio.DelimiterNotFound,
            orjson.JSONDecodeError,
        ):
            # Somebody left, or a client of another server that had this port before: that is no end of the world.
            return


@dataclass(frozen=True, slots=True)
class OutsideClient:
    """How a worker, or the conductor, reaches the outside world."""

    port: int

    async def perform(
        self, *, effect_id: str, event_id: str, key: str, kind: EffectKind, fence: int, who: str, fails: int = 0
    ) -> None:
        """Have one effect performed.

        Raises:
            UnavailableError: It was refused, and not done; or nobody answered, and nobody knows.
            RateLimitedError, OutageError: The world is in that mood; nothing was done.
        """
        request = {"ask": "perform", "effect_id": effect_id, "event_id": event_id, "key": key, "kind": kind}
        _check(await self._call({**request, "fence": fence, "who": who, "fails": fails}))

    async def call_model(self, *, event_id: str, who: str) -> None:
        """Call the model once.

        Raises:
            RateLimitedError: That was above its limit.
            UnavailableError, OutageError: As in `perform`.
        """
        _check(await self._call({"ask": "model", "event_id": event_id, "who": who}))

    async def limit_model(self, requests: int, *, window_s: float) -> None:
        """From now on let the model be called so often in any window."""
        await self._call({"ask": "limit", "limit": {"requests_per_window": requests, "window_s": window_s}})

    async def set_mood(self, status: str, **details: Any) -> None:
        """From now on be `ok`, `outage`, or `busy`."""
        await self._call({"ask": "mood", "mood": {"status": status, **details}})

    async def _call(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            with anyio.fail_after(CALL_WITHIN_S):
                async with await anyio.connect_tcp(HOST, self.port) as stream:
                    await stream.send(orjson.dumps(request) + b"\n")
                    return orjson.loads(await BufferedByteReceiveStream(stream).receive_until(b"\n", LINE_BYTES))
        except (OSError, TimeoutError, anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError) as error:
            raise UnavailableError("the outside world did not answer") from error


def _check(answer: Mood) -> None:
    match answer["status"]:
        case "ok":
            return
        case "outage":
            raise OutageError("the outside world is out")
        case "busy":
            raise RateLimitedError("the outside world is busy", retry_after_s=answer.get("retry_after_s"))
        case _:
            raise UnavailableError("the outside world refused this call")


if __name__ == "__main__":
    anyio.run(serve, int(sys.argv[1]), Path(sys.argv[2]))
