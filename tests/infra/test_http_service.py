"""The tool service's client: what an answer, or none, says about the effect."""

import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import httpx
import pytest

from infra.http_service import HttpToolService, open_client
from infra.local.back_office.server import running
from tests.fakes.shop import AWAY, small_shop
from topics.errors import RateLimitedError, RejectedError, RetryableError, TimedOutError, UnavailableError

MOVE = {"order_id": "#P1", **AWAY}
MOVE_NAME = "modify_pending_order_address"


class Shop:
    """A service over a real back office, and the back office's own account of what it did."""

    def __init__(self, url: str, client: httpx.AsyncClient) -> None:
        self.url = url
        self.client = client
        self.service = HttpToolService(url, client)

    async def move(self, *, key: str | None = "k", timeout_s: float = 10.0) -> str:
        return await self.service.call(MOVE_NAME, MOVE, tenant="acme", idempotency_key=key, timeout_s=timeout_s)

    async def arm(self, **fault: object) -> None:
        (await self.client.post(f"{self.url}/control/faults", json=fault)).raise_for_status()

    async def journal(self) -> list[str | None]:
        return [entry["idempotency_key"] for entry in (await self.client.get(f"{self.url}/v1/acme/journal")).json()]

    async def until_applied(self) -> None:
        """Wait for an effect that a call gave up on."""
        with anyio.fail_after(20):
            while not await self.journal():
                await anyio.sleep(0.02)

    async def double_effects(self) -> int:
        return (await self.client.get(f"{self.url}/v1/journal/summary")).json()["double_effects"]


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    async with running(tmp_path, seed=small_shop()) as url, open_client() as client:
        yield Shop(url, client)


async def test_a_result_comes_back_as_its_text(shop: Shop) -> None:
    assert await shop.service.call("find_user_id_by_email", {"email": "ann@example.com"}, tenant="acme") == "ann"


async def test_a_refusal_comes_back_as_its_text(shop: Shop) -> None:
    arguments = {"order_id": "#D1", "reason": "no longer needed"}
    text = await shop.service.call("cancel_pending_order", arguments, tenant="acme", idempotency_key="k")
    assert text == "Error: non-pending order cannot be cancelled"


async def test_bad_arguments_and_a_reused_key_come_back_as_their_texts(shop: Shop) -> None:
    assert (await shop.service.call("get_order_details", {"order": "#P1"}, tenant="acme")).startswith("Error: ")
    await shop.move()
    text = await shop.service.call(MOVE_NAME, MOVE | {"city": "Hull"}, tenant="acme", idempotency_key="k")
    assert text == "Error: this idempotency key belongs to another call"
    assert await shop.journal() == ["k"]


HIDDEN = [{"how": "status", "status": 500}, {"how": "cut"}, {"how": "delay", "delay_s": 0.8}]
PATIENCE_S = {"status": 20.0, "cut": 20.0, "delay": 0.4}


@pytest.mark.parametrize("hidden", HIDDEN, ids=lambda fault: fault["how"])
async def test_an_effect_that_was_hidden_is_not_made_again_under_its_key(shop: Shop, hidden: dict[str, Any]) -> None:
    await shop.arm(kind="fail_after_effect", times=1, **hidden)
    with pytest.raises(TimedOutError):
        await shop.move(timeout_s=PATIENCE_S[hidden["how"]])
    await shop.until_applied()
    recorded = await shop.service.lookup("k", tenant="acme")
    assert await shop.move() == recorded
    assert await shop.journal() == ["k"]
    assert await shop.double_effects() == 0


@pytest.mark.parametrize("hidden", HIDDEN, ids=lambda fault: fault["how"])
async def test_the_witness_sees_doubles_when_the_service_ignores_keys(shop: Shop, hidden: dict[str, Any]) -> None:
    await shop.arm(kind="ignore_idempotency_key")
    await shop.arm(kind="fail_after_effect", times=1, **hidden)
    with pytest.raises(TimedOutError):
        await shop.move(timeout_s=PATIENCE_S[hidden["how"]])
    await shop.until_applied()
    await shop.move()
    assert await shop.journal() == ["k", "k"]
    assert await shop.double_effects() == 1


async def test_a_call_without_a_key_is_made_again_each_time(shop: Shop) -> None:
    await shop.move(key=None)
    await shop.move(key=None)
    assert await shop.journal() == [None, None]


async def test_out_of_service_is_known_to_be_without_effect(shop: Shop) -> None:
    await shop.arm(kind="fail_before", status=503, times=1)
    with pytest.raises(UnavailableError):
        await shop.move()
    assert await shop.journal() == []


async def test_a_slow_service_times_out(shop: Shop) -> None:
    await shop.arm(kind="delay", delay_s=0.6, times=1)
    with pytest.raises(TimedOutError):
        await shop.move(timeout_s=0.2)


async def test_a_look_up_is_a_tenants_own(shop: Shop) -> None:
    text = await shop.move(key="a/b ?#")
    assert await shop.service.lookup("a/b ?#", tenant="acme") == text
    assert await shop.service.lookup("a/b ?#", tenant="umbrella") is None
    assert await shop.service.lookup("other", tenant="acme") is None


async def test_a_look_up_that_fails_says_so(shop: Shop) -> None:
    await shop.arm(kind="fail_before", operation="lookup", status=500, times=1)
    with pytest.raises(UnavailableError):
        await shop.service.lookup("k", tenant="acme")
    await shop.arm(kind="delay", operation="lookup", delay_s=0.6, times=1)
    with pytest.raises(UnavailableError):
        await shop.service.lookup("k", tenant="acme", timeout_s=0.2)


async def test_many_calls_at_once_share_the_pool(shop: Shop) -> None:
    found: list[str] = []

    async def find() -> None:
        found.append(await shop.service.call("find_user_id_by_email", {"email": "ann@example.com"}, tenant="acme"))

    async with anyio.create_task_group() as group:
        for _ in range(100):
            group.start_soon(find)
    assert found == ["ann"] * 100


# Answers that a back office of ours does not give


def answering(answer: Callable[[httpx.Request], httpx.Response]) -> HttpToolService:
    return HttpToolService("http://shop.example", httpx.AsyncClient(transport=httpx.MockTransport(answer)))


@pytest.mark.parametrize(
    ("status", "key", "error"),
    [
        (500, "k", TimedOutError),
        (502, "k", TimedOutError),
        (504, "k", TimedOutError),
        (503, "k", UnavailableError),
        (500, None, UnavailableError),
        (408, "k", UnavailableError),
        (429, "k", RateLimitedError),
        (400, "k", RejectedError),
        (401, "k", RejectedError),
        (404, "k", RejectedError),
        (302, "k", RejectedError),
    ],
)
async def test_a_status_says_what_became_of_the_effect(status: int, key: str | None, error: type[Exception]) -> None:
    service = answering(lambda _: httpx.Response(status, json={"error": "secret detail"}, headers={"location": "/elsewhere"}))
    with pytest.raises(error) as raised:
        await service.call("cancel", {}, tenant="acme", idempotency_key=key)
    assert type(raised.value) is error
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("7", 7.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("soon", None),
        ("-1", None),
        ("", None),
        ("Thu, 01 Jan 1970 00:00:00 -0000", None),
    ],
)
async def test_a_wait_that_is_asked_for_is_passed_on(value: str, expected: float | None) -> None:
    service = answering(lambda _: httpx.Response(429, headers={"retry-after": value}))
    with pytest.raises(RateLimitedError) as raised:
        await service.call("cancel", {}, tenant="acme")
    assert raised.value.retry_after_s == expected


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"result": 7}', b'{"error": "x"}'])
async def test_a_success_without_a_text_leaves_the_effect_unknown(body: bytes) -> None:
    service = answering(lambda _: httpx.Response(200, content=body))
    with pytest.raises(TimedOutError):
        await service.call("cancel", {}, tenant="acme", idempotency_key="k")
    with pytest.raises(UnavailableError):
        await service.lookup("k", tenant="acme")


@pytest.mark.parametrize("body", [b"", b"<html>not here", b"{}", b'{"effect": "x"}', b'{"error": "no such page"}'])
async def test_a_404_from_something_in_between_is_not_proof_that_nothing_ran(body: bytes) -> None:
    service = answering(lambda _: httpx.Response(404, content=body))
    with pytest.raises(UnavailableError):
        await service.lookup("k", tenant="acme")


async def test_a_tenant_or_an_operation_cannot_leave_its_place_in_the_path() -> None:
    seen: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.raw_path)
        return httpx.Response(200, json={"result": ""})

    await answering(answer).call("../x", {}, tenant="a/b?c")
    assert seen == [b"/v1/a%2Fb%3Fc/operations/..%2Fx"]


# Connections that fail


async def test_a_service_that_is_not_there_is_known_to_be_without_effect() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    async with open_client() as client:
        with pytest.raises(UnavailableError):
            await HttpToolService(f"http://127.0.0.1:{port}", client).call("cancel", {}, tenant="acme", idempotency_key="k")


async def test_a_full_pool_is_known_to_be_without_effect(shop: Shop) -> None:
    await shop.arm(kind="delay", delay_s=1.5, times=1)
    errors: list[RetryableError] = []

    async with open_client(max_connections=1) as client:
        service = HttpToolService(shop.url, client)

        async def move(key: str) -> None:
            try:
                await service.call(MOVE_NAME, MOVE, tenant="acme", idempotency_key=key, timeout_s=1.2)
            except RetryableError as error:
                errors.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(move, "first")
            group.start_soon(move, "second")
    # The second never got a connection, and says so before the first gives up.
    assert [type(error) for error in errors] == [UnavailableError, TimedOutError]


async def serve_raw(handler: Callable[[anyio.abc.SocketStream], object], *, task_status: anyio.abc.TaskStatus[str]) -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.listeners[0].extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610 - no Django here
    task_status.started(f"http://127.0.0.1:{port}")
    async with listener:
        await listener.serve(handler)


async def hang_up(stream: anyio.abc.SocketStream) -> None:
    async with stream:
        await stream.receive()


async def drip(stream: anyio.abc.SocketStream) -> None:
    # The client hangs up, as it should.
    async with stream:
        await stream.receive()
        await stream.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
        while True:
            await stream.send(b" ")
            await anyio.sleep(0.02)


@pytest.mark.parametrize("handler", [hang_up, drip])
async def test_a_service_that_hangs_up_or_drips_leaves_the_effect_unknown(
    handler: Callable[[anyio.abc.SocketStream], object],
) -> None:
    async with anyio.create_task_group() as group, open_client() as client:
        began_at = anyio.current_time()
        url = await group.start(lambda *, task_status: serve_raw(handler, task_status=task_status))
        with pytest.raises(TimedOutError):
            await HttpToolService(url, client).call("cancel", {}, tenant="acme", idempotency_key="k", timeout_s=0.3)
        assert anyio.current_time() - began_at < 5
        group.cancel_scope.cancel()
