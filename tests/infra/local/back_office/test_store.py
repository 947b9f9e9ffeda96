import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.local.back_office.retail import OPERATIONS
from infra.local.back_office.store import Answer, KeyReusedError, Store
from tests.fakes.shop import AWAY, HOME, small_shop
from topics.errors import ConfigError

MOVE = {"order_id": "#P1", **AWAY}
MOVE_BACK = {"order_id": "#P1", **HOME}
CANCEL = {"order_id": "#P2", "reason": "no longer needed"}


def open_store(path: Path | str) -> Store:
    return Store(Path(path), seed=small_shop(), operations=OPERATIONS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "back_office.sqlite3"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    store = open_store(path)
    yield store
    store.close()


def call(
    store: Store, arguments: dict[str, Any], *, tenant: str = "acme", key: str | None = None, careless: bool = False
) -> Answer:
    name = "cancel_pending_order" if "reason" in arguments else "modify_pending_order_address"
    return store.run(tenant, OPERATIONS[name], arguments, key=key, ignore_key=careless)


def test_a_key_that_comes_again_gets_the_recorded_answer_and_no_second_effect(store: Store) -> None:
    first = call(store, CANCEL, key="k")
    again = call(store, CANCEL, key="k")
    assert (again.outcome, again.text, again.repeated) == ("applied", first.text, True)
    assert [entry["outcome"] for entry in store.journal("acme")] == ["applied"]
    assert store.summary()["repeats"] == 1


def test_a_key_with_other_arguments_is_not_run(store: Store) -> None:
    call(store, MOVE, key="k")
    for other in (MOVE_BACK, CANCEL):
        with pytest.raises(KeyReusedError):
            call(store, other, key="k")
    assert len(store.journal("acme")) == 1


def test_the_order_of_arguments_does_not_make_another_call(store: Store) -> None:
    call(store, MOVE, key="k")
    assert call(store, dict(reversed(MOVE.items())), key="k").repeated


def test_a_refusal_is_recorded_under_its_key_too(store: Store) -> None:
    call(store, CANCEL)
    first = call(store, CANCEL, key="k")
    assert first == Answer("refused", "Error: non-pending order cannot be cancelled")
    assert call(store, CANCEL, key="k").repeated
    assert store.recorded("acme", "k") == Answer("refused", first.text, repeated=True)
    assert [entry["outcome"] for entry in store.journal("acme")] == ["applied", "refused"]


def test_a_tenant_sees_neither_the_rows_nor_the_keys_nor_the_journal_of_another(store: Store) -> None:
    call(store, CANCEL, tenant="acme", key="k")
    assert store.changes("umbrella") == []
    assert store.journal("umbrella") == []
    assert store.recorded("umbrella", "k") is None
    assert not call(store, CANCEL, tenant="umbrella", key="k").repeated
    assert store.summary()["double_effects"] == store.summary()["repeated_calls"] == 0


def test_two_effects_under_one_key_are_counted_as_a_double_effect(store: Store) -> None:
    call(store, MOVE, key="k")
    call(store, MOVE, key="k", careless=True)
    call(store, MOVE, key="k", careless=True)
    summary = store.summary()
    assert (summary["effects"], summary["double_effects"], summary["repeated_calls"]) == (3, 2, 2)
    assert summary["doubles"] == [{"tenant": "acme", "idempotency_key": "k", "extra": 2, "sequences": [1, 2, 3]}]


def test_the_same_call_under_two_keys_is_counted_as_repeated_only(store: Store) -> None:
    call(store, MOVE, key="k1")
    call(store, MOVE, key="k2")
    summary = store.summary()
    assert (summary["double_effects"], summary["repeated_calls"]) == (0, 1)


def test_a_refused_second_try_is_no_double_effect(store: Store) -> None:
    call(store, CANCEL, key="k")
    call(store, CANCEL, key="k", careless=True)
    summary = store.summary()
    assert (summary["effects"], summary["refusals"], summary["double_effects"]) == (1, 1, 0)


def test_a_record_that_is_as_in_the_seed_again_is_no_change(store: Store) -> None:
    call(store, MOVE)
    assert [(row["table"], row["key"], row["after"]["address"]) for row in store.changes("acme")] == [("orders", "#P1", AWAY)]
    call(store, MOVE_BACK)
    assert store.changes("acme") == []


def test_the_journal_says_when_what_and_under_which_key_and_can_be_read_on(store: Store) -> None:
    call(store, MOVE, key="k")
    call(store, MOVE_BACK)
    first, second = store.journal("acme")
    assert (first["sequence"], first["operation"], first["arguments"]) == (1, "modify_pending_order_address", MOVE)
    assert (first["idempotency_key"], second["idempotency_key"]) == ("k", None)
    assert first["at"].endswith("+00:00")
    assert store.journal("acme", after=1) == [second]


def test_a_read_leaves_no_trace(store: Store) -> None:
    store.run("acme", OPERATIONS["get_order_details"], {"order_id": "#P1"}, key="k")
    assert store.journal("acme") == []
    assert store.recorded("acme", "k") is None


def test_everything_is_there_after_a_restart(store: Store, path: Path) -> None:
    answer = call(store, CANCEL, key="k")
    changes, journal = store.changes("acme"), store.journal("acme")
    store.close()
    reopened = open_store(path)
    assert reopened.changes("acme") == changes
    assert reopened.journal("acme") == journal
    assert call(reopened, CANCEL, key="k").text == answer.text
    assert len(reopened.journal("acme")) == 1
    reopened.close()


def test_a_failed_commit_changes_neither_the_file_nor_what_readers_see(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    call(store, MOVE)

    def broken() -> None:
        raise sqlite3.OperationalError("disk full")

    monkeypatch.setattr(store, "_now", broken)
    with pytest.raises(sqlite3.OperationalError):
        call(store, CANCEL, key="k")
    monkeypatch.undo()
    assert [row["key"] for row in store.changes("acme")] == ["#P1"]
    assert store.recorded("acme", "k") is None
    assert call(store, CANCEL, key="k").outcome == "applied"


def test_a_file_in_use_or_no_database_is_named(store: Store, path: Path, tmp_path: Path) -> None:
    call(store, MOVE)
    with pytest.raises(ConfigError, match="locked"):
        open_store(path)
    (tmp_path / "other").write_bytes(b"not a database, however long it is made to be" * 100)
    with pytest.raises(ConfigError, match="not a database"):
        open_store(tmp_path / "other")


def test_a_reset_forgets_everything(store: Store) -> None:
    call(store, MOVE, key="k")
    store.reset()
    assert (store.journal("acme"), store.changes("acme"), store.recorded("acme", "k")) == ([], [], None)
    assert not call(store, MOVE, key="k").repeated


calls = st.tuples(st.sampled_from(["acme", "umbrella"]), st.sampled_from(["k1", "k2", "k3"]))


@settings(max_examples=40)
@given(st.lists(calls, max_size=12))
def test_however_calls_repeat_each_key_has_one_effect(sequence: list[tuple[str, str]]) -> None:
    store = open_store(":memory:")
    for tenant, key in sequence:
        # The key decides the arguments, as it does for a client that derives keys from its calls.
        call(store, MOVE | {"city": key}, tenant=tenant, key=key)
    for tenant in ("acme", "umbrella"):
        applied = [entry["idempotency_key"] for entry in store.journal(tenant)]
        assert applied == list(dict.fromkeys(key for owner, key in sequence if owner == tenant))
    assert store.summary()["double_effects"] == 0
    store.close()
