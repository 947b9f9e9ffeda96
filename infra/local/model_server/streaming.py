"""How a reply goes out: in one body or as server-sent events, at the scripted pace, with the scripted faults."""

from collections.abc import Sequence
from typing import Any, Final

import anyio
import orjson

from infra.clock import SystemClock
from infra.local.model_server import completions, http
from infra.local.model_server.completions import Reply, Stamp
from infra.local.model_server.faults import ON_STREAMS, Fault, Pace

NOT_JSON: Final = b"{not json"
_CLOCK: Final = SystemClock()


class EventStream:
    """Events on their way to one client. Those that are due together travel in one write."""

    def __init__(self, send: http.Send, *, pace: Pace, started_s: float) -> None:
        self._send = send
        self._pace = pace
        self._started_s = started_s
        self._waiting = bytearray()

    async def start(self) -> None:
        """Send the headers."""
        await http.send_start(self._send, status=200, headers={"content-type": "text/event-stream; charset=utf-8"})

    async def until_due(self, token: int) -> None:
        """Wait until a token is due; what was added before goes out first."""
        wait_s = self._started_s + self._pace.due_s(token) - _CLOCK.monotonic_s()
        if wait_s > 0:
            await self.flush()
            await anyio.sleep(wait_s)

    def add(self, data: dict[str, Any] | bytes) -> None:
        """Put an event at the end."""
        self._waiting += completions.event(data)

    async def flush(self) -> None:
        """Send what waits."""
        if self._waiting:
            body = bytes(self._waiting)
            self._waiting.clear()
            await http.send_part(self._send, body)

    async def end(self) -> None:
        """End the stream properly."""
        await self._send({"type": "http.response.body", "body": bytes(self._waiting)})


async def send_stream(
    stream: EventStream, stamp: Stamp, reply: Reply, *, faults: Sequence[Fault], usage: dict[str, Any] | None
) -> None:
    """Send a reply as events; `usage` comes last when it is given."""
    await stream.until_due(0)
    await stream.start()
    choices = [fault for fault in faults if fault.kind in {"empty_choices", "null_choices"}]
    if choices:
        stream.add(stamp.head("chat.completion.chunk") | {"choices": _odd_choices(choices[0])})
    elif not await _send_deltas(stream, stamp, reply, trip=_on_stream(faults)):
        return
    if usage is not None:
        stream.add(stamp.head("chat.completion.chunk") | {"choices": [], "usage": usage})
    stream.add(b"[DONE]")
    await stream.end()


async def send_body(send: http.Send, stamp: Stamp, reply: Reply, *, faults: Sequence[Fault], usage: dict[str, Any] | None) -> None:
    """Send a reply as one body; stream faults become what they are without a stream."""
    body = completions.completion(stamp, reply, usage)
    for fault in faults:
        if fault.kind in {"empty_choices", "null_choices"}:
            body["choices"] = _odd_choices(fault)
    whole = orjson.dumps(body)
    trip = _on_stream(faults)
    if trip and trip.kind == "error_event":
        await http.send_json(send, _injected(trip), status=500)
        return
    if trip and trip.kind == "stall":
        await anyio.sleep(trip.delay_s)
    sent = {"cut": whole[: len(whole) // 2], "drop": whole[: len(whole) // 2], "malformed": NOT_JSON}.get(
        trip.kind if trip else "", whole
    )
    promised = len(whole) if trip and trip.kind == "drop" else len(sent)
    await http.send_start(send, status=200, headers={"content-type": "application/json", "content-length": str(promised)})
    if promised > len(sent):
        # Returning before the promised length makes the server close the connection.
        await http.send_part(send, sent)
        return
    await send({"type": "http.response.body", "body": sent})


async def _send_deltas(stream: EventStream, stamp: Stamp, reply: Reply, *, trip: Fault | None) -> bool:
    """Send every delta and the finish reason. Returns whether the stream goes on."""
    stream.add(completions.chunk(stamp, {"role": "assistant", "content": None if reply.tool_calls else ""}))
    parts = list(completions.deltas(stamp, reply))
    trip_at = min(1 if trip is None or trip.after_chunks is None else trip.after_chunks, len(parts))
    for index, delta in enumerate([*parts, None]):
        if trip and index == trip_at and not await _trip(stream, trip):
            return False
        if delta is None:
            break
        await stream.until_due(index)
        stream.add(completions.chunk(stamp, delta))
    stream.add(completions.chunk(stamp, {}, finish_reason=reply.finish))
    return True


async def _trip(stream: EventStream, trip: Fault) -> bool:
    """Do what the fault says. Returns whether the stream goes on."""
    if trip.kind == "stall":
        await stream.flush()
        await anyio.sleep(trip.delay_s)
        return True
    if trip.kind == "malformed":
        stream.add(NOT_JSON)
        return True
    if trip.kind == "error_event":
        stream.add(_injected(trip))
    if trip.kind == "drop":
        # Returning before the end of the body makes the server close the connection.
        await stream.flush()
        return False
    await stream.end()
    return False


def _injected(fault: Fault) -> dict[str, Any]:
    return completions.error_body("the server had an error while processing your request", kind="server_error", code=fault.code)


def _on_stream(faults: Sequence[Fault]) -> Fault | None:
    return next((fault for fault in faults if fault.kind in ON_STREAMS), None)


def _odd_choices(fault: Fault) -> list[Any] | None:
    return None if fault.kind == "null_choices" else []
