import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from infra.local.back_office.faults import FAULT, LOOKUP, Faults, Strike


def armed(*faults: dict[str, object]) -> Faults:
    result = Faults()
    for fault in faults:
        result.arm(FAULT.validate_python(fault))
    return result


def struck(faults: Faults, *, tenant: str = "acme", operation: str = "cancel", mutates: bool = True) -> Strike:
    return faults.strike(tenant=tenant, operation=operation, mutates=mutates)


def test_a_call_meets_nothing_when_nothing_is_armed() -> None:
    assert struck(Faults()) == Strike()


@given(every=st.integers(1, 4), times=st.one_of(st.none(), st.integers(1, 4)), calls=st.integers(0, 20))
def test_a_fault_meets_every_nth_call_so_many_times(every: int, times: int | None, calls: int) -> None:
    faults = armed({"kind": "fail_before", "every": every, "times": times})
    met = [number for number in range(1, calls + 1) if struck(faults).before is not None]
    assert met == [number for number in range(1, calls + 1) if number % every == 0][:times]


def test_a_fault_meets_only_its_tenant_and_operation() -> None:
    faults = armed({"kind": "delay", "delay_s": 2, "tenant": "acme", "operation": "cancel"})
    assert struck(faults, tenant="umbrella").delay_s == 0
    assert struck(faults, operation="return").delay_s == 0
    assert struck(faults).delay_s == 2


def test_a_call_that_does_not_match_uses_no_time_up() -> None:
    faults = armed({"kind": "fail_before", "operation": "cancel", "times": 1})
    struck(faults, operation="return")
    assert struck(faults).before is not None
    assert struck(faults).before is None


def test_faults_about_effects_pass_reads_by() -> None:
    faults = armed({"kind": "fail_after_effect", "times": 1}, {"kind": "ignore_idempotency_key", "times": 1})
    assert struck(faults, mutates=False) == Strike()
    met = struck(faults)
    assert met.after is not None
    assert met.ignore_key


def test_a_look_up_is_met_only_by_name() -> None:
    assert struck(armed({"kind": "fail_before"}), operation=LOOKUP, mutates=False) == Strike()
    assert struck(armed({"kind": "fail_before", "operation": LOOKUP}), operation=LOOKUP, mutates=False).before is not None


def test_delays_add_up_and_cleared_faults_are_gone() -> None:
    faults = armed({"kind": "delay", "delay_s": 1}, {"kind": "delay", "delay_s": 2})
    assert struck(faults).delay_s == 3
    assert [fault["struck"] for fault in faults.shown()] == [1, 1]
    faults.clear()
    assert struck(faults) == Strike()


@pytest.mark.parametrize(
    "fault",
    [
        {},
        {"kind": "explode"},
        {"kind": "delay"},
        {"kind": "delay", "delay_s": -1},
        {"kind": "fail_before", "status": 200},
        {"kind": "delay", "delay_s": 1, "typo": 1},
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(fault: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        FAULT.validate_python(fault)
