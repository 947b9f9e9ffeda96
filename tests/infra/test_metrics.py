"""Figures: every one that an alert names is there, they count what happened, and nothing of a tenant is in them."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from infra.clock import SystemClock
from infra.kafka.board import RuntimeConfig
from infra.metrics import MAX_CODES, Exposition
from infra.models.door import Door, Trial
from infra.models.metering import OURS, Call
from infra.vitals import Vitals
from tests.infra.kafka.test_runtime import FAST, World, failed, query
from topics.envelope import Event
from topics.errors import FencedError, OutageError, RejectedError, UnavailableError
from topics.events import Payload

ALERTS = yaml.safe_load((Path(__file__).parents[2] / "infra" / "alerts.yaml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
PROMETHEUS_OWN = {"up"}
LABELS = ("group", "topic", "partition", "stage", "dependency", "provider", "result", "code", "le")
SECRET = "jane.doe@example.org"


class Lag:
    async def look(self, group: str, partitions: Any) -> dict[Any, int]:
        del group
        return dict.fromkeys(partitions, 3)


def vitals_of(world: World) -> Vitals:
    async def well() -> None: ...

    return Vitals([world.runtime], SystemClock(), Lag(), ask={"redis": well})


async def silence() -> None: ...


def door_that_is_out() -> Door[None]:
    """A provider whose key is wrong."""
    door = Door("spare", None, Trial(Call("spare", "m", OURS, 1), silence), SystemClock())
    ticket = door.breaker.ask(0)
    assert ticket is not None
    door.leave(ticket, OutageError(f"no access for {SECRET}"))
    return door


def figures(vitals: Vitals, *, effects_in_doubt: int = 0) -> dict[str, dict[tuple[str, ...], float]]:
    """Sample name -> label values -> value."""
    text = Exposition(vitals, effects_in_doubt=lambda: effects_in_doubt, doors=[door_that_is_out()]).text().decode()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(sample.labels[name] for name in LABELS if name in sample.labels)
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


class Busy:
    """Fails in every way there is, by thread; for what may pass only once."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    async def __call__(self, event: Event[Any]) -> AsyncGenerator[Payload]:
        thread: str = event.payload.thread_id
        is_first, self.seen = thread not in self.seen, self.seen | {thread}
        if thread == "dead":
            raise RejectedError(f"no good: {SECRET}", code="policy_denied")
        if thread == "odd":
            raise RejectedError("a code that nobody made", code=f"{SECRET} said so")
        if thread == "fenced" and is_first:
            raise FencedError
        if thread == "again" and is_first:
            raise UnavailableError("not now")
        yield failed(event)


@asynccontextmanager
async def ran() -> AsyncGenerator[tuple[World, Vitals]]:
    """A member that did all of it, still running."""
    threads = ["good", "dead", "odd", "fenced", "again", "good"]
    records = [query(0, n, thread, tenant="tenant-of-jane") for n, thread in enumerate(threads)]
    world = World(records, Busy(), config=RuntimeConfig(commit_interval_s=0.005, retry=FAST, slots=7))
    vitals = vitals_of(world)
    async with world.running():
        await world.until(world.all_committed)
        await vitals._read_lag()
        yield world, vitals


async def test_the_figures_are_what_happened():
    async with ran() as (_, vitals):
        seen = figures(vitals, effects_in_doubt=2)
    one = ("g",)
    assert seen["sluice_records_admitted_total"] == {one: 6}
    assert seen["sluice_records_done_total"] == {one: 4}
    assert seen["sluice_retries_total"] == {one: 1}
    assert seen["sluice_lease_losses_total"] == {one: 1}
    assert seen["sluice_dead_letters_total"] == {("g", "queries", "policy_denied"): 1, ("g", "queries", "other"): 1}
    assert seen["sluice_lag_records"] == {("g", "queries", "0"): 3}
    assert seen["sluice_buffered_records"] == {("g", "queries", "0"): 0}
    assert seen["sluice_buffered_bytes"] == {("g", "queries", "0"): 0}
    assert seen["sluice_oldest_unfinished_seconds"] == seen["sluice_in_flight_records"] == {one: 0}
    assert seen["sluice_handler_seconds_count"] == {("g", "queries"): 8}
    assert seen["sluice_handler_seconds_bucket"]["g", "queries", "+Inf"] == 8
    assert seen["sluice_slots"] == {one: 7}
    assert seen["sluice_effects_in_doubt_total"] == {(): 2}
    assert seen["sluice_provider_out"] == {("spare",): 1}
    assert seen["sluice_provider_outages_total"] == {("spare",): 1}
    assert seen["sluice_provider_trials_total"] == {("spare",): 0}
    assert seen["sluice_provider_calls_total"] == {("spare", "failed"): 1}
    assert seen["sluice_ready"] == {(): 1}
    assert set(seen["sluice_stalled"].values()) == {0}
    assert seen["sluice_rebalances_total"] == {one: 1}


async def test_nothing_of_a_tenant_is_in_a_label():
    """P11."""
    async with ran() as (_, vitals):
        text = Exposition(vitals).text().decode()
    for word in (SECRET, "jane", "good", 'dead"', "0-1", "acme"):
        assert word not in text


async def test_codes_are_bounded():
    async with ran() as (world, vitals):
        world.runtime.board.counters.dead_by |= {("queries", f"code_{number}"): 1 for number in range(10 * MAX_CODES)}
        assert len(figures(vitals)["sluice_dead_letters_total"]) <= MAX_CODES + 1


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
async def test_an_alert_asks_for_figures_that_exist_and_says_what_to_do(rule: dict[str, Any]):
    named = set(re.findall(r"\b(sluice_\w+|up)\b", rule["expr"]))
    assert named
    async with ran() as (_, vitals):
        assert named - PROMETHEUS_OWN - figures(vitals).keys() == set()
    labels = {label for group in re.findall(r"by \(([^)]*)\)", rule["expr"]) for label in re.split(r",\s*", group)}
    assert labels <= {"group", "topic", "stage", "code", "dependency", "provider"}
    assert set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values()))) <= labels | {"group"}
    assert len(rule["annotations"]["runbook"]) > 20
    assert rule["labels"]["severity"] in {"page", "ticket"}


def test_an_alert_names_settings_that_exist():
    from infra.settings import Settings

    known = {f"SLUICE_{name.upper()}" for name in Settings.model_fields}
    assert set(re.findall(r"SLUICE_\w+", str(ALERTS))) <= known
