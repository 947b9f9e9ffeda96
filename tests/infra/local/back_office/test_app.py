"""The HTTP side: in memory where an answer is enough, over real connections where one fails."""

from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import anyio
import httpx
import pytest

from infra.local.back_office.app import BackOffice
from infra.local.back_office.retail import OPERATIONS
from infra.local.back_office.server import running
from infra.local.back_office.store import Store
from tests.fakes.shop import AWAY, small_shop

MOVE = {"order_id": "#P1", **AWAY}
CANCEL = {"order_id": "#P2", "reason": "no longer needed"}


@pytest.fixture
async def shop() -> AsyncIterator[httpx.AsyncClient]:
    with closing(Store(Path(":memory:"), seed=small_shop(), operations=OPERATIONS)) as store:
        transport = httpx.ASGITransport(BackOffice(store))
        async with httpx.AsyncClient(transport=transport, base_url="http://shop.example") as client:
            yield client


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with running(tmp_path, seed=small_shop()) as url, httpx.AsyncClient(base_url=url, trust_env=False, timeout=10) as client:
        yield client


async def post(
    shop: httpx.AsyncClient, arguments: object, *, name: str = "modify_pending_order_address", key: str | None = None
) -> httpx.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    return await shop.post(f"/v1/acme/operations/{name}", json=arguments, headers=headers)


async def arm(shop: httpx.AsyncClient, **fault: object) -> None:
    (await shop.post("/control/faults", json=fault)).raise_for_status()


async def effects(shop: httpx.AsyncClient) -> int:
    return (await shop.get("/v1/journal/summary")).json()["effects"]


async def test_it_says_that_it_is_well(served: httpx.AsyncClient) -> None:
    assert (await served.get("/healthz")).json() == {"status": "ok"}


async def test_a_call_its_journal_its_changes_and_its_record_tell_one_story(shop: httpx.AsyncClient) -> None:
    answer = await post(shop, MOVE, key="a/b c")
    assert answer.status_code == 200
    assert (await shop.get("/v1/acme/effects/a%2Fb%20c")).json() == {"result": answer.json()["result"], "outcome": "applied"}
    assert [entry["idempotency_key"] for entry in (await shop.get("/v1/acme/journal")).json()] == ["a/b c"]
    assert (await shop.get("/v1/acme/journal?after=1")).json() == []
    assert [(row["table"], row["key"]) for row in (await shop.get("/v1/acme/changes")).json()] == [("orders", "#P1")]
    assert (await shop.get("/v1/umbrella/changes")).json() == []


async def test_a_refusal_is_a_conflict_with_its_text(shop: httpx.AsyncClient) -> None:
    answer = await post(shop, CANCEL | {"order_id": "#D1"}, name="cancel_pending_order")
    assert (answer.status_code, answer.json()) == (409, {"error": "Error: non-pending order cannot be cancelled"})


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("POST", "/v1/acme/operations/modify_user_address", b"{}", 422),
        ("POST", "/v1/acme/operations/think", b'{"thought": 7}', 422),
        ("POST", "/v1/acme/operations/think", b"[]", 400),
        ("POST", "/v1/acme/operations/think", b'{"thought": "\\ud800"}', 400),
        ("POST", "/v1/acme/operations/think", b"\xff", 400),
        ("POST", "/v1/acme/operations/think", b"[" * 100_000, 400),
        ("POST", "/v1/acme/operations/think", b" " * 1_100_000, 413),
        ("POST", "/v1/acme/operations/refund_everybody", b"{}", 404),
        ("GET", "/v1/acme/operations/think", b"", 404),
        ("GET", "/v1/acme/journal?after=x", b"", 400),
        ("GET", "/v1/acme/effects/none", b"", 404),
        ("GET", "/", b"", 404),
        ("POST", "/control/faults", b'{"kind": "explode"}', 422),
        ("POST", "/control/nothing", b"", 404),
    ],
)
async def test_what_makes_no_sense_is_answered_and_changes_nothing(
    shop: httpx.AsyncClient, method: str, path: str, content: bytes, status: int
) -> None:
    answer = await shop.request(method, path, content=content)
    assert answer.status_code == status
    assert answer.json()
    assert await effects(shop) == 0


async def test_a_key_used_for_another_call_is_unprocessable(shop: httpx.AsyncClient) -> None:
    await post(shop, MOVE, key="k")
    answer = await post(shop, MOVE | {"city": "Hull"}, key="k")
    assert answer.status_code == 422
    assert await effects(shop) == 1


async def test_a_fault_before_does_nothing(shop: httpx.AsyncClient) -> None:
    await arm(shop, kind="fail_before", times=1)
    assert (await post(shop, MOVE, key="k")).status_code == 503
    assert await effects(shop) == 0
    assert (await post(shop, MOVE, key="k")).status_code == 200


async def test_a_fault_after_the_effect_hides_it(shop: httpx.AsyncClient) -> None:
    await arm(shop, kind="fail_after_effect", how="status", status=502, times=1)
    assert (await post(shop, MOVE, key="k")).status_code == 502
    assert await effects(shop) == 1
    assert (await post(shop, MOVE, key="k")).status_code == 200
    assert await effects(shop) == 1


async def test_a_cut_connection_gives_no_answer_and_the_next_call_works(served: httpx.AsyncClient) -> None:
    await arm(served, kind="fail_after_effect", how="cut", times=1)
    with pytest.raises(httpx.RemoteProtocolError):
        await post(served, MOVE, key="k")
    assert await effects(served) == 1
    assert (await post(served, MOVE, key="k")).status_code == 200


async def test_a_late_answer_is_late_and_true(served: httpx.AsyncClient) -> None:
    await arm(served, kind="fail_after_effect", how="delay", delay_s=0.3, times=1)
    with pytest.raises(httpx.ReadTimeout):
        await served.post("/v1/acme/operations/modify_pending_order_address", json=MOVE, timeout=httpx.Timeout(20, read=0.1))
    with anyio.fail_after(20):
        while await effects(served) != 1:
            await anyio.sleep(0.02)


async def test_faults_are_shown_and_cleared(shop: httpx.AsyncClient) -> None:
    await arm(shop, kind="delay", delay_s=0.01, operation="think")
    await post(shop, {"thought": "hm"}, name="think")
    (shown,) = (await shop.get("/control/faults")).json()["faults"]
    assert (shown["kind"], shown["operation"], shown["struck"]) == ("delay", "think", 1)
    assert (await shop.delete("/control/faults")).json() == {"faults": []}


async def test_a_reset_forgets_effects_and_faults(shop: httpx.AsyncClient) -> None:
    await post(shop, MOVE, key="k")
    await arm(shop, kind="fail_before")
    await shop.post("/control/reset")
    assert await effects(shop) == 0
    assert (await post(shop, MOVE, key="k")).status_code == 200
