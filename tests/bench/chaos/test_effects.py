"""The outside world: idempotent where it says so, and truthful about the rest."""

from pathlib import Path

import anyio
import pytest

from bench.chaos.effects import OutsideClient, OutsideWorld, serve
from bench.chaos.facts import Called, Performed
from bench.chaos.ledger import Ledger, read
from infra.local.ports import HOST, free_port
from topics.errors import UnavailableError


@pytest.fixture
def world(tmp_path: Path) -> OutsideWorld:
    return OutsideWorld(Ledger(tmp_path, "effects"))


def ask(world: OutsideWorld, effect_id: str, kind: str = "write", *, fails: int = 0) -> str:
    request = {"effect_id": effect_id, "event_id": effect_id, "key": "k", "kind": kind, "fence": 1, "who": "w1", "fails": fails}
    return world.answer({"ask": "perform", **request})["status"]


def journal(folder: Path) -> list[bool]:
    """For each call, whether it did something."""
    return [fact.applied for fact in read(folder) if isinstance(fact, Performed)]


def test_a_write_is_applied_once_however_often_it_is_called(world: OutsideWorld, tmp_path: Path) -> None:
    assert [ask(world, "e1") for _ in range(3)] == ["ok", "ok", "ok"]
    assert journal(tmp_path) == [True, False, False]


def test_an_irreversible_effect_happens_as_often_as_it_is_called(world: OutsideWorld, tmp_path: Path) -> None:
    assert [ask(world, "e1", "irreversible") for _ in range(2)] == ["ok", "ok"]
    assert journal(tmp_path) == [True, True]


def test_a_call_that_is_refused_does_nothing_and_the_next_one_does(world: OutsideWorld, tmp_path: Path) -> None:
    assert [ask(world, "e1", fails=1) for _ in range(2)] == ["unavailable", "ok"]
    assert journal(tmp_path) == [False, True]


def test_in_a_bad_mood_it_does_nothing_and_writes_nothing(world: OutsideWorld, tmp_path: Path) -> None:
    world.answer({"ask": "mood", "mood": {"status": "busy", "retry_after_s": 1}})
    assert ask(world, "e1") == "busy"
    world.answer({"ask": "mood", "mood": {"status": "ok"}})
    assert ask(world, "e1") == "ok"
    assert journal(tmp_path) == [True]


def test_the_model_counts_its_calls_and_refuses_what_is_above_its_limit(world: OutsideWorld, tmp_path: Path) -> None:
    call = {"ask": "model", "event_id": "q1", "who": "w1"}
    assert world.answer(call) == {"status": "ok"}
    world.answer({"ask": "limit", "limit": {"requests_per_window": 1, "window_s": 60}})
    assert [world.answer(call)["status"] for _ in range(2)] == ["ok", "busy"]
    assert [(fact.who, fact.refused) for fact in read(tmp_path) if isinstance(fact, Called)] == [
        ("w1", False),
        ("w1", False),
        ("w1", True),
    ]


async def test_a_stranger_who_speaks_no_json_is_left_alone_and_ends_nothing(tmp_path: Path) -> None:
    """Ports are used again: a client of the server that had this one before once ended the world of a whole run."""
    port = free_port()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve, port, tmp_path)
        client = OutsideClient(port)
        with anyio.fail_after(10):
            while not await _answers(client):
                await anyio.sleep(0.05)
            async with await anyio.connect_tcp(HOST, port) as stranger:
                await stranger.send(b"\x00\x00\x00\x0chello\n")
                with pytest.raises(anyio.EndOfStream):
                    await stranger.receive()
        assert await _answers(client)
        tasks.cancel_scope.cancel()


async def _answers(client: OutsideClient) -> bool:
    try:
        await client.set_mood("ok")
    except UnavailableError:
        return False
    return True
