"""The pace of calls: within the limit in every window, full while somebody asks, fair while several do."""

import heapq
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from infra.models.pacing import Granted, Later, Pacer, pace_of

Asks = Sequence[tuple[float, str, int]]


def calls_of(pacer: Pacer, asks: Asks) -> list[tuple[float, str, int]]:
    """When calls happen, if each one asks at its time."""
    made = [(at, tenant, tokens, pacer.ask(tenant, tokens, at)) for at, tenant, tokens in asks]
    return [(at + answer.wait_ms, tenant, tokens) for at, tenant, tokens, answer in made if isinstance(answer, Granted)]


def most_in_a_window(calls: Sequence[tuple[float, float]], window_ms: float) -> float:
    """The most that any window holds, of (moment, amount)."""
    ordered = sorted(calls)
    return max((sum(amount for at, amount in ordered if since <= at < since + window_ms) for since, _ in ordered), default=0)


asks_at_any_time = st.lists(st.tuples(st.floats(0, 3_000), st.sampled_from(["a", "b", "c"]), st.integers(1, 60)), max_size=120).map(
    sorted
)


@settings(max_examples=150, deadline=None)
@given(asks_at_any_time, st.integers(1, 40), st.floats(0.01, 0.5))
def test_no_window_ever_holds_more_requests_than_the_limit(asks: Asks, limit: int, horizon_s: float) -> None:
    pace = pace_of(limit, None, window_s=1.0, horizon_s=horizon_s)
    calls = calls_of(Pacer(pace), asks)
    assert most_in_a_window([(at, 1) for at, _, _ in calls], 1_000) <= limit


@settings(max_examples=150, deadline=None)
@given(asks_at_any_time, st.integers(60, 2_000))
def test_no_window_ever_holds_more_tokens_than_the_limit_and_one_call(asks: Asks, limit: int) -> None:
    calls = calls_of(Pacer(pace_of(None, limit, window_s=1.0)), asks)
    biggest = max((tokens for _, _, tokens in calls), default=0)
    assert most_in_a_window([(at, tokens) for at, _, tokens in calls], 1_000) <= limit + biggest


@settings(max_examples=100, deadline=None)
@given(asks_at_any_time, st.integers(0, 119))
def test_one_that_forgets_what_it_granted_still_keeps_the_limit(asks: Asks, forgets_at: int) -> None:
    pace = pace_of(20, None, window_s=1.0, horizon_s=0.2)
    before = calls_of(Pacer(pace), [ask for number, ask in enumerate(asks) if number < forgets_at])
    pacer = Pacer(pace)
    pacer.hold((asks[forgets_at][0] if forgets_at < len(asks) else 0.0) + 2 * pace.horizon_ms)
    after = calls_of(pacer, asks[forgets_at:])
    assert most_in_a_window([(at, 1) for at, _, _ in before + after], 1_000) <= 20


def serve(
    pacer: Pacer, demand: dict[str, tuple[int, float]], *, for_ms: float
) -> tuple[Counter[str], list[float], dict[str, float]]:
    """Play callers that come back as they are told. `demand`: tenant -> callers, pause between two calls of one in ms.

    Returns the calls a tenant made, their moments, and the longest that a call of a tenant took from its first ask.
    """
    queue = [(number / 10, tenant, number / 10) for tenant, (callers, _) in demand.items() for number in range(callers)]
    heapq.heapify(queue)
    made: Counter[str] = Counter()
    moments: list[float] = []
    slowest: dict[str, float] = {}
    while queue and queue[0][0] < for_ms:
        now, tenant, since = heapq.heappop(queue)
        match pacer.ask(tenant, 1, now):
            case Granted(wait):
                made[tenant] += 1
                moments.append(now + wait)
                slowest[tenant] = max(slowest.get(tenant, 0.0), now + wait - since)
                following = now + wait + demand[tenant][1]
                heapq.heappush(queue, (following, tenant, following))
            case Later(retry):
                heapq.heappush(queue, (now + retry + 50, tenant, since))
    return made, moments, slowest


def test_a_lone_tenant_has_all_of_the_pace() -> None:
    pacer = Pacer(pace_of(600, None))
    made, _, _ = serve(pacer, {"a": (300, 0)}, for_ms=60_000)
    assert 0.95 * 600 <= made["a"] <= 600 + 10


def test_two_tenants_that_want_all_have_half_each_however_many_callers_one_has() -> None:
    made, moments, _ = serve(Pacer(pace_of(600, None)), {"noisy": (500, 0), "other": (30, 0)}, for_ms=120_000)
    assert 0.8 <= made["other"] / made["noisy"] <= 1.25
    assert len(moments) >= 0.9 * 1_200


def test_a_tenant_of_few_calls_is_let_in_before_a_noisy_one_and_what_it_leaves_is_used() -> None:
    made, moments, slowest = serve(Pacer(pace_of(600, None)), {"noisy": (500, 0), "quiet": (1, 1_000)}, for_ms=120_000)
    assert slowest["quiet"] <= 2_200
    assert made["quiet"] >= 35
    assert len(moments) >= 0.9 * 1_200


def test_those_that_are_sent_away_come_back_one_after_the_other() -> None:
    pacer = Pacer(pace_of(60, None))
    retries = [answer.retry_ms for _ in range(40) if isinstance(answer := pacer.ask("a", 1, 0.0), Later)]
    assert len(retries) >= 30
    assert all(later - sooner >= 900 for sooner, later in pairwise(retries) if later < 60_000)


def test_what_a_call_used_beyond_its_estimate_delays_the_next() -> None:
    pacer = Pacer(pace_of(None, 600, window_s=1.0, horizon_s=1.0, margin=0.0))
    pacer.ask("a", 6, 0.0)
    pacer.settle(60)
    later = pacer.ask("b", 6, 0.0)
    assert later == Granted(1_000 + 10 + 100)


@settings(max_examples=300, deadline=None)
@given(st.floats(0, 1e9), st.floats(0.001, 10))
def test_the_first_call_after_a_hold_of_two_horizons_is_granted_however_numbers_round(now_s: float, horizon_s: float) -> None:
    pacer = Pacer(pace_of(6_000, None, horizon_s=horizon_s))
    pacer.hold((now_s + 2 * pacer.pace.horizon_ms / 1000) * 1000)
    assert isinstance(pacer.ask("a", 1, now_s * 1000), Granted)
