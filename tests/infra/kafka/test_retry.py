import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.kafka.retry import DeadLetter, Halt, Pause, RetryAfter, RetryPolicy, next_step
from topics.errors import (
    ConfigError,
    FencedError,
    LeaseBusyError,
    MalformedError,
    OutageError,
    RateLimitedError,
    RetryableError,
    TooEarlyError,
    UnavailableError,
)

POLICY = RetryPolicy()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UnavailableError("x"), RetryAfter),
        (MalformedError("x", code="bad_json"), DeadLetter),
        (OutageError("x"), Pause),
        (ConfigError("x"), Halt),
        (ValueError("a bug"), RetryAfter),
    ],
)
def test_each_class_of_error_has_its_own_fate(error: Exception, kind: type):
    assert isinstance(next_step(error, failures=0, policy=POLICY, jitter=0.5), kind)


def test_a_rejected_record_keeps_its_code():
    assert next_step(MalformedError("x", code="bad_json"), failures=0, policy=POLICY, jitter=0) == DeadLetter("bad_json", "poison")


def test_bugs_get_few_tries_and_the_code_unexpected():
    assert next_step(KeyError("x"), failures=POLICY.max_unexpected - 1, policy=POLICY, jitter=0) == DeadLetter(
        "unexpected", "exhausted"
    )


def test_waiting_for_a_lease_spends_no_attempt_however_often():
    for error in (LeaseBusyError("x"), FencedError("x")):
        step = next_step(error, failures=10_000, policy=POLICY, jitter=0.5)
        assert isinstance(step, RetryAfter)
        assert not step.spends_attempt


def test_an_outage_never_becomes_a_dead_letter():
    assert isinstance(next_step(OutageError("x"), failures=10_000, policy=POLICY, jitter=0.5), Pause)


@given(jitter=st.floats(0, 0.999), asked=st.floats(0, 10_000))
def test_the_providers_word_on_waiting_is_a_floor(jitter: float, asked: float):
    step = next_step(RateLimitedError(retry_after_s=asked), failures=0, policy=POLICY, jitter=jitter)
    assert isinstance(step, RetryAfter)
    assert step.delay_s >= min(asked, 3600)


@pytest.mark.parametrize("asked", [None, 0.0, 2.0])
def test_a_limited_rate_spends_no_attempt_however_often(asked: float | None):
    """P1: a storm of them lasts for more retries than a record has attempts."""
    step = next_step(RateLimitedError(retry_after_s=asked), failures=10_000, policy=POLICY, jitter=0.5)
    assert isinstance(step, RetryAfter)
    assert not step.spends_attempt
    assert step.delay_s >= POLICY.base_s


@given(asked=st.floats(0, 10_000), jitter=st.floats(0, 0.999))
def test_those_that_wait_for_a_rate_come_back_apart(asked: float, jitter: float):
    """Case 25 (i): the spread grows with the wait, and stays small beside it."""
    step = next_step(RateLimitedError(retry_after_s=asked), failures=0, policy=POLICY, jitter=jitter)
    first = next_step(RateLimitedError(retry_after_s=asked), failures=0, policy=POLICY, jitter=0)
    assert isinstance(step, RetryAfter)
    assert isinstance(first, RetryAfter)
    assert step.delay_s - first.delay_s == pytest.approx(jitter * min(max(min(asked, 3600) / 3, 0.5), 10), abs=1e-6)


def test_a_rate_that_is_limited_for_a_day_will_never_be_free():
    """A request that is larger than a provider ever takes is limited for ever: in the end it is kept and explained."""
    for limited_s, fate in ((86_399.0, RetryAfter), (86_400.0, DeadLetter)):
        step = next_step(RateLimitedError(retry_after_s=2), failures=0, policy=POLICY, jitter=0.5, limited_s=limited_s)
        assert isinstance(step, fate)
    assert step == DeadLetter("rate_limited", "exhausted")
    due = next_step(TooEarlyError(retry_after_s=2), failures=0, policy=POLICY, jitter=0.5, limited_s=1e9)
    assert isinstance(due, RetryAfter), "a moment that has not come is no limit"


@given(failures=st.integers(0, 6), jitter=st.floats(0, 0.999))
def test_the_delay_is_full_jitter_under_a_growing_cap(failures: int, jitter: float):
    step = next_step(RetryableError("x"), failures=failures, policy=POLICY, jitter=jitter)
    assert isinstance(step, RetryAfter)
    assert 0 <= step.delay_s <= min(POLICY.cap_s, POLICY.base_s * 2**failures)
