"""The back office as a plain ASGI application.

GET  /healthz
POST /v1/{tenant}/operations/{name}    JSON arguments, header Idempotency-Key; 200 {"result"} | 409 or 422 {"error"} | 5xx
GET  /v1/{tenant}/effects/{key}        200 {"result", "outcome"} | 404 {"effect": null}
GET  /v1/{tenant}/journal?after=N      every mutation applied or refused
GET  /v1/{tenant}/changes              every record that differs from the seed
GET  /v1/journal/summary               counts over all tenants, double effects among them
GET, POST, DELETE /control/faults      shown, armed, cleared
POST /control/reset                    everything forgotten, faults included
"""

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import parse_qs, unquote

import anyio
import orjson
from pydantic import ValidationError

from infra.local.back_office.faults import FAULT, LOOKUP, FailAfterEffect, Faults
from infra.local.back_office.store import KeyReusedError, Store
from infra.local.back_office.tables import BadArgumentsError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MAX_BODY_BYTES: Final = 1_048_576
MAX_KEY_CHARACTERS: Final = 255


class _BadRequestError(ValueError):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _CutError(ConnectionError):
    """The connection is to be closed without an answer."""


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    segments: tuple[str, ...]
    query: dict[str, list[str]]
    headers: dict[bytes, bytes]
    body: bytes

    def json_object(self) -> dict[str, Any]:
        try:
            value: object = orjson.loads(self.body or b"{}")
        except orjson.JSONDecodeError as error:
            raise _BadRequestError(400, "the body is not JSON") from error
        if not isinstance(value, dict):
            raise _BadRequestError(400, "the body is not a JSON object")
        return cast("dict[str, Any]", value)

    def idempotency_key(self) -> str | None:
        key = self.headers.get(b"idempotency-key")
        if key is None:
            return None
        if not 0 < len(key) <= MAX_KEY_CHARACTERS:
            raise _BadRequestError(400, f"an Idempotency-Key has 1 to {MAX_KEY_CHARACTERS} characters")
        return key.decode("latin-1")


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    body: object


class BackOffice:
    """The application over one store."""

    def __init__(self, store: Store, faults: Faults | None = None) -> None:
        self._store: Final = store
        self._faults: Final = faults or Faults()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            reply = await self._route(await _read(scope, receive))
        except _BadRequestError as error:
            reply = _Reply(error.status, {"error": f"Error: {error}"})
        except _CutError:
            await _cut(send)
            return
        await _send(send, reply)

    async def _route(self, request: _Request) -> _Reply:
        match request.segments:
            case ("healthz",):
                return _Reply(200, {"status": "ok"})
            case ("control", *rest):
                return self._control(request, rest)
            case ("v1", "journal", "summary") if request.method == "GET":
                return _Reply(200, self._store.summary())
            case ("v1", tenant, *rest):
                return await self._tenant_page(tenant, request, rest)
            case _:
                return _Reply(404, {"error": "Error: no such page"})

    async def _tenant_page(self, tenant: str, request: _Request, rest: list[str]) -> _Reply:
        match request.method, *rest:
            case "POST", "operations", name:
                return await self._operate(tenant, name, request)
            case "GET", "effects", key:
                return await self._look_up(tenant, key)
            case "GET", "journal":
                return _Reply(200, self._store.journal(tenant, after=_after(request)))
            case "GET", "changes":
                return _Reply(200, self._store.changes(tenant))
            case _:
                return _Reply(404, {"error": "Error: no such page"})

    async def _operate(self, tenant: str, name: str, request: _Request) -> _Reply:
        operation = self._store.operations.get(name)
        if operation is None:
            return _Reply(404, {"error": f"Error: there is no operation {name}"})
        key = request.idempotency_key()
        strike = self._faults.strike(tenant=tenant, operation=name, mutates=operation.mutates)
        await anyio.sleep(strike.delay_s)
        if strike.before is not None:
            return _Reply(strike.before.status, {"error": "Error: out of order, before any effect"})
        try:
            arguments = operation.check(request.json_object())
            answer = self._store.run(tenant, operation, arguments, key=key, ignore_key=strike.ignore_key)
        except (BadArgumentsError, KeyReusedError) as error:
            return _Reply(422, {"error": f"Error: {error}"})
        if strike.after is not None:
            failure = await _fail(strike.after)
            if failure is not None:
                return failure
        if answer.outcome == "refused":
            return _Reply(409, {"error": answer.text})
        return _Reply(200, {"result": answer.text})

    async def _look_up(self, tenant: str, key: str) -> _Reply:
        strike = self._faults.strike(tenant=tenant, operation=LOOKUP, mutates=False)
        await anyio.sleep(strike.delay_s)
        if strike.before is not None:
            return _Reply(strike.before.status, {"error": "Error: out of order"})
        answer = self._store.recorded(tenant, key)
        if answer is None:
            return _Reply(404, {"effect": None})
        return _Reply(200, {"result": answer.text, "outcome": answer.outcome})

    def _control(self, request: _Request, rest: list[str]) -> _Reply:
        match request.method, *rest:
            case "POST", "faults":
                try:
                    self._faults.arm(FAULT.validate_python(request.json_object()))
                except ValidationError as error:
                    raise _BadRequestError(422, str(error)) from error
            case "DELETE", "faults":
                self._faults.clear()
            case "POST", "reset":
                self._faults.clear()
                self._store.reset()
            case "GET", "faults":
                pass
            case _:
                return _Reply(404, {"error": "Error: no such control"})
        return _Reply(200, {"faults": self._faults.shown()})


async def _fail(after: FailAfterEffect) -> _Reply | None:
    """Hide the effect; None when the true answer follows, late."""
    if after.how == "cut":
        raise _CutError
    if after.how == "delay":
        await anyio.sleep(after.delay_s)
        return None
    return _Reply(after.status, {"error": "Error: out of order"})


def _after(request: _Request) -> int:
    value = request.query.get("after", ["0"])[-1]
    if not value.isascii() or not value.isdigit() or len(value) > 15:
        raise _BadRequestError(400, "after is a sequence number")
    return int(value)


async def _read(scope: Scope, receive: Receive) -> _Request:
    # The raw path: a key may hold an escaped slash, and the decoded path no longer says which slash was one.
    raw_path: bytes = scope["raw_path"]
    return _Request(
        method=scope["method"],
        segments=tuple(unquote(part) for part in raw_path.decode("latin-1").strip("/").split("/")),
        query=parse_qs(scope["query_string"].decode("latin-1")),
        headers=dict(scope["headers"]),
        body=await _body(receive),
    )


async def _body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            # A call that was not heard to its end must not take effect.
            raise _CutError
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise _BadRequestError(413, "the body is too large")
        if not message.get("more_body", False):
            return bytes(body)


async def _send(send: Send, reply: _Reply) -> None:
    body = orjson.dumps(reply.body)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _cut(send: Send) -> None:
    """Promise a body and return without it: the server closes the connection."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1")]})
    await send({"type": "http.response.body", "body": b"", "more_body": True})
