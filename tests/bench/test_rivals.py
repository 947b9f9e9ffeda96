"""What the comparison counts, and how it sums up."""

import anyio
import pytest

from bench.rivals import section
from bench.rivals.cell import MOST_RECORDS, Load, Result, row
from bench.rivals.place import ENGINES
from bench.rivals.watch import Watch


async def test_the_watch_counts_handlers_that_ended_and_stops_at_enough():
    watch = Watch(records=3, handler_s=0.0, within_s=10.0)
    for number in range(5):
        await watch.handle(f"k{number}")
    result = await watch.measured()
    assert (result.records, result.overlaps) == (3, 0)
    assert result.seconds > 0


async def test_the_watch_stops_in_time_and_sees_two_records_of_one_key_at_once():
    watch = Watch(records=100, handler_s=0.01, within_s=0.05)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch.handle, "a")
        tasks.start_soon(watch.handle, "a")
        result = await watch.measured()
    assert (result.records, result.overlaps) == (2, 1)


def test_a_result_comes_back_as_it_was_said():
    result = Result(records=10, seconds=2.0, cpu_s=0.5, rss_mb=50.0, overlaps=1)
    assert Result.from_json(result.as_json()) == result
    assert (result.rate, result.cpu_us) == (5.0, 50_000)


@pytest.mark.parametrize(
    ("load", "name", "records", "ideal"),
    [(Load(0.0, 32), "no-op", 15_000, None), (Load(0.05, 256), "50 ms", 10_240, 5120), (Load(1.0, 1000), "1 s", 3000, 1000)],
)
def test_a_load_knows_its_name_its_size_and_its_ideal(load: Load, name: str, records: int, ideal: float | None):
    assert (load.name, load.records) == (name, records)
    assert section.HOT.ideal_rate == pytest.approx(50 / 0.02)
    assert load.ideal_rate == (None if ideal is None else pytest.approx(ideal))
    assert all(one.records <= MOST_RECORDS for one in section.LOADS)


def test_ratios_are_taken_within_a_round_since_a_busy_machine_slows_both():
    calm, busy = (Result(records=100, seconds=seconds, cpu_s=0.1, rss_mb=1.0) for seconds in (1.0, 10.0))
    half_calm, half_busy = (Result(records=50, seconds=seconds, cpu_s=0.1, rss_mb=1.0) for seconds in (1.0, 10.0))
    assert row("rival", Load(1.0, 200), [half_calm, half_busy], [calm, busy]).of_ours == 0.5
    assert row("rival", Load(1.0, 200), [half_calm], []).of_ours is None


def test_every_engine_takes_its_turn_where_it_has_something_to_show():
    first, second = section._players(section.LOADS[0], section.LOADS), section._players(section.LOADS[1], section.LOADS)
    assert first == list(ENGINES)
    assert set(first) - set(second) == {section.ALONE, section.LOOP}
    assert set(section.FACTS) == set(ENGINES) - {section.LOOP}
