"""What the procedures conclude from what they saw: each must be seen to find its fault."""

from typing import Any

import pytest

from bench.chaos.facts import Buried, Called, Ended, Published
from bench.chaos.inputs import Task, record_of
from bench.chaos.scenarios import crash_loop, fairness, letters, limits, outages, stuck
from bench.chaos.scenarios.poison import poisons
from infra.kafka.dead_letter import Death, dead_letter
from topics.catalogue import Catalogue
from topics.envelope import decode
from topics.errors import RejectedError
from topics.records import OutboundRecord, RawRecord

NS = 1_000_000_000


def buried(record: OutboundRecord, *, reason: str = "bad_json", offset: int = 0, **changed: Any) -> RawRecord:
    """The dead letter of a record, as it lies on its topic; `changed` is what somebody spoiled."""
    raw = RawRecord(record.topic, 0, offset, record.key, record.value, record.headers, 1)
    death = Death("g", reason, "poison", "decode", "", "MalformedError", 1, 1, 1)
    letter = dead_letter(raw, death, topic="dead-letters")
    return RawRecord(
        **{
            "topic": letter.topic,
            "partition": 0,
            "offset": offset,
            "key": letter.key,
            "value": letter.value,
            "headers": letter.headers,
        }
        | changed
    )


def published(event_id: str, offset: int, *, at_s: float = 0.0) -> Published:
    where = {"partition": "queries/0", "offset": offset, "effect": "none", "key": "k"}
    return Published(at_ns=int(at_s * NS), who="c", event_id=event_id, claim_id=event_id, **where)


# P10


@pytest.mark.parametrize("seed", range(5))
def test_each_poison_dies_of_the_reason_that_it_names(seed: int):
    found = []
    for one in poisons(seed, topic="queries"):
        raw = RawRecord("queries", 0, 0, one.record.key, one.record.value, one.record.headers)
        with pytest.raises(RejectedError) as caught:
            decode(raw, catalogue=Catalogue())
        found.append((one.reason, caught.value.reason_code))
    assert [named for named, _ in found] == [told for _, told in found]


def test_poison_of_a_seed_is_the_same_every_time_and_tells_its_cases_apart():
    assert poisons(7, topic="t") == poisons(7, topic="t")
    cases = [letters.case_of(one.record.headers) for seed in (1, 2) for one in poisons(seed, topic="t")]
    assert len(set(cases)) == len(cases)


def test_letters_with_the_same_bytes_are_unaltered():
    sent = [one.record for one in poisons(1, topic="queries")]
    assert letters.altered(sent, [buried(one) for one in sent]) == []


@pytest.mark.parametrize("spoil", [{"key": b"other"}, {"value": b"other"}, {"headers": ()}], ids=["key", "value", "headers"])
def test_a_letter_with_other_bytes_is_found(spoil: dict[str, Any]):
    sent = [one.record for one in poisons(1, topic="queries")]
    found = [buried(one) for one in sent[1:]]
    assert len(letters.altered(sent, [*found, buried(sent[0], **spoil)])) == 1


@pytest.mark.parametrize("times", [0, 2])
def test_a_letter_that_is_missing_or_there_twice_is_found(times: int):
    (sent, *_) = poisons(1, topic="queries")
    assert len(letters.altered([sent.record], [buried(sent.record)] * times)) == 1


def test_a_letter_with_another_reason_is_found():
    (sent, *_) = poisons(1, topic="queries")
    case = letters.case_of(sent.record.headers)
    assert letters.wrong_reasons({case: "bad_json"}, [buried(sent.record)]) == []
    assert len(letters.wrong_reasons({case: "bad_json"}, [buried(sent.record, reason="unexpected")])) == 1


# P11


@pytest.mark.parametrize(("times", "broken"), [(0, 1), (1, 0), (2, 1)])
def test_each_doomed_record_has_exactly_one_letter(times: int, broken: int):
    record = record_of(Task("q1", "k", "none"), catalogue=Catalogue())
    assert len(letters.not_exactly_one([record], [buried(record)] * times)) == broken


# P5-limit


def called(*moments_s: float, refused: bool = False) -> list[Called]:
    return [Called(at_ns=int(at_s * NS), who="w", event_id="q", refused=refused) for at_s in moments_s]


def test_a_window_is_counted_wherever_it_begins_and_does_not_hold_its_own_start():
    window = limits.WINDOW_S
    assert limits.most_in_a_window([]) == 0
    assert limits.most_in_a_window(called(0.0, window)) == 1
    assert limits.most_in_a_window(called(window - 0.5, 0.0, window, window + 0.4)) == 3


@pytest.mark.parametrize(("more", "broken"), [(0, 0), (1, 1)])
def test_one_call_more_than_the_limit_in_any_window_is_found(more: int, broken: int):
    spread = [number * 1.001 * limits.WINDOW_S / limits.LIMIT for number in range(3 * limits.LIMIT)]
    assert len(limits.above_the_limit(called(*spread, *[7.77] * more))) == broken


def test_a_single_429_is_found_though_no_window_is_full():
    assert limits.above_the_limit(called(0.0)) == []
    assert len(limits.above_the_limit(called(0.0, refused=True))) == 1


def test_a_run_that_never_came_near_the_limit_shows_nothing():
    near = int(limits.LIMIT * limits.NEAR)
    assert limits.far_below_the_limit(called(*[0.0] * near)) == []
    assert len(limits.far_below_the_limit(called(*[0.0] * (near - 1)))) == 1


# P8


def test_others_that_waited_for_the_slow_record_are_found():
    assert stuck.others_waited(["a", "b", stuck.STUCK], {"a", "b"}) == []
    assert len(stuck.others_waited(["a", "b", stuck.STUCK], {"a"})) == 1


def test_a_position_past_the_slow_record_is_found():
    assert stuck.not_held("queries/0", 3, positions={"queries/0": 3}) == []
    assert len(stuck.not_held("queries/0", 3, positions={"queries/0": 4})) == 1


def test_a_lag_that_does_not_show_is_found():
    assert stuck.lag_hidden("queries/0", positions={"queries/0": 3}, ends={"queries/0": 9}) == []
    assert len(stuck.lag_hidden("queries/0", positions={"queries/0": 9}, ends={"queries/0": 9})) == 1


# P13


def test_calls_that_met_the_outage_are_counted_and_the_catching_up_is_timed():
    outcomes = ["OutageError", "RateLimitedError", "done", "UnavailableError"]
    ends = [
        Ended(at_ns=0, who="w", event_id="e", key="k", partition="queries/0", offset=0, epoch=1, outcome=one) for one in outcomes
    ]
    assert outages.refused([*ends]) == 2
    assert outages.catch_up_s({"a": 3 * NS, "b": 7 * NS}, 5 * NS) == 2.0
    assert outages.catch_up_s({"a": 3 * NS}, 5 * NS) == 0.0


# P14


def dead(offset: int, reason: str) -> Buried:
    return Buried(at_ns=0, who="c", partition="queries/0", offset=offset, reason=reason)


def test_only_the_record_that_kills_is_to_blame():
    facts = [published(crash_loop.CRASHER, 0), published("q1", 1)]
    assert crash_loop.wrongly_blamed([*facts, dead(0, crash_loop.REASON)]) == []
    assert len(crash_loop.wrongly_blamed(facts)) == 1
    assert len(crash_loop.wrongly_blamed([*facts, dead(0, "unexpected")])) == 1
    assert len(crash_loop.wrongly_blamed([*facts, dead(0, crash_loop.REASON), dead(1, crash_loop.REASON)])) == 1


# P16


def test_a_quiet_tenant_that_is_pushed_aside_is_found():
    assert fairness.unfair(alone_s=0.2, beside_s=1.0) == []
    assert len(fairness.unfair(alone_s=0.2, beside_s=9.0)) == 1


def test_a_wait_is_from_publication_to_the_end():
    assert fairness.waits_s([published("a", 0, at_s=1.0), published("b", 1)], {"a": 3 * NS}) == {"a": 2.0}
