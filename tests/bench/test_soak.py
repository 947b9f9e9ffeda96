"""How a soak is judged."""

from collections import Counter

import pytest

from bench import soak
from bench.soak import Sample


def samples(*rss_mb: float, every_s: float = 10.0) -> list[Sample]:
    return [Sample(number * every_s, value) for number, value in enumerate(rss_mb)]


def test_memory_is_flat_when_the_last_third_is_the_middle_one_whatever_the_first_was():
    warm_up = [100.0 + number for number in range(30)]
    assert soak.is_flat(samples(*warm_up, *[130.0] * 60)) is True
    assert soak.thirds(samples(*warm_up, *[130.0] * 60)) == (114.5, 130.0, 130.0)


def test_a_leak_is_not_flat():
    leaking = samples(*[150.0 + number * 0.5 for number in range(90)])
    assert soak.is_flat(leaking) is False
    assert soak.slope_mb_per_min(leaking) == pytest.approx(3.0)


def test_a_sawtooth_is_flat_and_has_no_slope():
    teeth = samples(*[150.0 + number % 9 for number in range(90)])
    assert soak.is_flat(teeth) is True
    assert abs(soak.slope_mb_per_min(teeth)) < 0.1


def test_a_short_run_is_not_judged():
    assert soak.is_flat(samples(100.0, 200.0)) is None
    assert soak.is_flat([]) is None


def test_bounds_are_kept_up_to_one_poll():
    within = Counter({"sluice_buffered_records": soak.MAX_BUFFERED + soak.POLL_RECORDS, "sluice_slots_used": 200})
    assert soak.bounds_kept(within, slots=200)
    assert not soak.bounds_kept(within + Counter(sluice_buffered_records=1), slots=200)
    assert not soak.bounds_kept(within, slots=199)
