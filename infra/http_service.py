"""A tenant's back office over HTTP: the door to `httpx` for tool calls.

What an answer means for the effect is decided here, once. A refusal is an answer too: its text is returned, for the model
to read, and nothing changed.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, cast
from urllib.parse import quote

import anyio
import httpx

from topics.errors import RateLimitedError, RejectedError, TimedOutError, UnavailableError

MAX_CONNECTIONS: Final = 200

# Not as many as connections: the pool looks at every idle one, by several system calls, for every request. Measured with 50
# calls at once: 3.2 ms of CPU a call with 200 idle ones allowed, 1.8 ms with 20.
MAX_IDLE_CONNECTIONS: Final = 20

CONNECT_TIMEOUT_S: Final = 5.0

# Below the idle time of common servers (5 s and up): a request sent into a connection that the server is closing has an
# unknown fate, and would leave an effect in doubt for nothing.
KEEP_ALIVE_S: Final = 3.0

_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol, httpx.ProxyError)


def open_client(*, max_connections: int = MAX_CONNECTIONS, max_idle_connections: int = MAX_IDLE_CONNECTIONS) -> httpx.AsyncClient:
    """A pooled client for tool services; its owner closes it. Proxies from the environment are not used."""
    limits = httpx.Limits(
        max_connections=max_connections, max_keepalive_connections=max_idle_connections, keepalive_expiry=KEEP_ALIVE_S
    )
    return httpx.AsyncClient(limits=limits, trust_env=False, follow_redirects=False)


class HttpToolService:
    """Operations of a back office, each tenant under its own path.

    Source: the `Idempotency-Key` header of draft-ietf-httpapi-idempotency-key-header.
    """

    def __init__(self, base_url: str, client: httpx.AsyncClient) -> None:
        self._base_url: Final = base_url.rstrip("/")
        self._client: Final = client

    async def call(
        self,
        operation: str,
        arguments: Mapping[str, Any],
        *,
        tenant: str,
        idempotency_key: str | None = None,
        timeout_s: float = 20.0,
    ) -> str:
        """Run one operation and return its text, or the text of the refusal, which begins with `Error: `.

        Args:
            idempotency_key: Given for every call that may change something: without it, a server error counts as harmless.
            timeout_s: Seconds for the whole call, connecting included.

        Raises:
            UnavailableError: It was not reached or is out of service. There was no effect.
            RateLimitedError: It asks to wait. There was no effect.
            TimedOutError: No answer in time, none at all, or one that says nothing. Whether there was an effect is unknown.
            RejectedError: It does not take such calls at all. There was no effect.
        """
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        url = self._url(tenant, "operations", operation)
        request = self._client.build_request("POST", url, json=dict(arguments), headers=headers, timeout=_timeout(timeout_s))
        response = await self._send(request, timeout_s=timeout_s)
        match response.status_code:
            case 200:
                return _text(response, "result")
            case 409 | 422:
                return _text(response, "error")
            case status if status >= 500 and status != 503 and idempotency_key is not None:
                raise TimedOutError(f"the tool service failed with status {status}")
            case _:
                raise _refusal(response)

    async def lookup(self, idempotency_key: str, *, tenant: str, timeout_s: float = 10.0) -> str | None:
        """The recorded result of a keyed operation, or of its refusal; None when the service says that it never ran.

        Raises:
            UnavailableError: Nobody knows: no answer, or one that says nothing, such as a 404 from something in between.
        """
        url = self._url(tenant, "effects", idempotency_key)
        request = self._client.build_request("GET", url, timeout=_timeout(timeout_s))
        try:
            response = await self._send(request, timeout_s=timeout_s)
            if response.status_code == 200:
                return _text(response, "result")
        except TimedOutError as error:
            raise UnavailableError("the tool service did not say what it did") from error
        # "It never ran" lets the call run again, so only the service's own words count.
        if response.status_code == 404 and _member(response, "effect", default="missing") is None:
            return None
        raise UnavailableError(f"the tool service did not say what it did: status {response.status_code}")

    def _url(self, *segments: str) -> str:
        return "/".join((self._base_url, "v1", *(quote(segment, safe="") for segment in segments)))

    async def _send(self, request: httpx.Request, *, timeout_s: float) -> httpx.Response:
        try:
            # httpx bounds each read, not their sum: a body that drips would never end.
            with anyio.fail_after(timeout_s):
                return await self._client.send(request)
        except _NOT_SENT as error:
            raise UnavailableError("the tool service could not be reached") from error
        except TimeoutError as error:
            raise TimedOutError("the tool service did not answer in time") from error
        except httpx.HTTPError as error:
            raise TimedOutError(f"the tool service gave no whole answer: {type(error).__name__}") from error


def _timeout(timeout_s: float) -> httpx.Timeout:
    """Waiting for a connection ends well before the whole call does, so that what was never sent is known as such."""
    connect_s = min(CONNECT_TIMEOUT_S, timeout_s / 4)
    return httpx.Timeout(timeout_s, connect=connect_s, pool=connect_s)


def _member(response: httpx.Response, name: str, *, default: object = None) -> object:
    try:
        body: object = response.json()
    except ValueError:
        return default
    return cast("dict[str, object]", body).get(name, default) if isinstance(body, dict) else default


def _text(response: httpx.Response, name: str) -> str:
    text = _member(response, name)
    if not isinstance(text, str):
        raise TimedOutError(f"the tool service's answer has no text {name!r}", code="tool_answer_unreadable")
    return text


def _refusal(response: httpx.Response) -> Exception:
    status = response.status_code
    if status == 429:
        return RateLimitedError("the tool service asks to wait", retry_after_s=_retry_after_s(response))
    if status >= 500 or status == 408:
        return UnavailableError(f"the tool service is out of service: status {status}")
    return RejectedError(f"the tool service does not take the call: status {status}", code="tool_call_rejected")


def _retry_after_s(response: httpx.Response) -> float | None:
    """Seconds from a `Retry-After` header in either of its forms (RFC 9110)."""
    value = response.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        due_at = parsedate_to_datetime(value)
    except ValueError:
        return None
    if due_at.tzinfo is None:
        return None
    return max(0.0, (due_at - datetime.now(UTC)).total_seconds())
