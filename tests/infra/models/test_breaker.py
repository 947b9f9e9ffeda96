"""The breaker against a model that keeps the whole history and looks at it anew each time."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from infra.models.breaker import WINDOW, Breaker, BreakerPolicy, Ticket

POLICY = BreakerPolicy(failures_in_a_row=3, failed_share=0.5, min_calls=6, open_s=5.0, max_open_s=30.0)


@dataclass
class Model:
    """What a breaker is, without any economy: everything that was said since it was last closed or opened."""

    said: list[bool] = field(default_factory=list)
    open_until_s: float | None = None
    failed_trials: int = 0

    def too_much(self) -> bool:
        last = self.said[-WINDOW:]
        return self.said[-3:] == [False] * 3 or (len(last) >= 6 and last.count(False) * 2 >= len(last))

    def open(self, now_s: float) -> None:
        self.open_until_s = now_s + min(5.0 * 2**self.failed_trials, 30.0)


class Breaking(RuleBasedStateMachine):
    """Calls begin and end in any order, and time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker(POLICY)
        self.model = Model()
        self.now_s = 0.0
        self.current: list[Ticket] = []
        self.stale: list[Ticket] = []
        self.trial: Ticket | None = None

    def outlive(self) -> None:
        self.stale += self.current
        self.current = []

    @rule()
    def ask(self) -> None:
        ticket = self.breaker.ask(self.now_s)
        if self.model.open_until_s is None:
            assert ticket is not None
            assert not ticket.is_trial
            self.current.append(ticket)
        elif self.trial is None and self.now_s >= self.model.open_until_s:
            assert ticket is not None
            assert ticket.is_trial
            self.trial = ticket
        else:
            assert ticket is None, "one trial at a time, and none before its time"

    @rule(seconds=st.sampled_from([0.5, 4.5, 5.0, 10.0, 31.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @precondition(lambda self: self.current)
    @rule(well=st.booleans(), for_everybody=st.booleans())
    def end(self, well: bool, for_everybody: bool) -> None:
        ticket = self.current.pop()
        if well:
            self.breaker.succeeded(ticket)
        else:
            self.breaker.failed(ticket, self.now_s, for_everybody=for_everybody)
        self.model.said.append(well)
        if not well and (for_everybody or self.model.too_much()):
            self.model.open(self.now_s)
            self.outlive()

    @precondition(lambda self: self.trial is not None)
    @rule(well=st.sampled_from([True, False, None]))
    def end_trial(self, well: bool | None) -> None:
        ticket, self.trial = self.trial, None
        assert ticket is not None
        if well is None:
            self.breaker.given_up(ticket)
        elif well:
            self.breaker.succeeded(ticket)
            self.model = Model()
        else:
            self.breaker.failed(ticket, self.now_s)
            self.model.failed_trials += 1
            self.model.open(self.now_s)

    @precondition(lambda self: self.stale)
    @rule(well=st.booleans())
    def end_late(self, well: bool) -> None:
        """A call that began before the breaker opened says nothing any more."""
        ticket = self.stale.pop()
        if well:
            self.breaker.succeeded(ticket)
        else:
            self.breaker.failed(ticket, self.now_s)

    @precondition(lambda self: self.current)
    @rule()
    def give_up(self) -> None:
        self.breaker.given_up(self.current.pop())

    @invariant()
    def agrees(self) -> None:
        until_s = self.model.open_until_s
        if until_s is None:
            assert self.breaker.state(self.now_s) == "closed"
            assert self.breaker.opens_in_s(self.now_s) == 0
        else:
            expected = "half_open" if self.trial is not None or self.now_s >= until_s else "open"
            assert self.breaker.state(self.now_s) == expected
            assert self.breaker.opens_in_s(self.now_s) == max(0.0, until_s - self.now_s)


TestBreaking = Breaking.TestCase


@given(st.integers(min_value=1, max_value=200))
def test_an_outage_of_any_length_never_waits_longer_than_the_bound_for_its_next_trial(trials: int) -> None:
    breaker, now_s = Breaker(POLICY), 0.0
    for _ in range(POLICY.failures_in_a_row):
        ticket = breaker.ask(now_s)
        assert ticket is not None
        breaker.failed(ticket, now_s)
    for _ in range(trials):
        wait_s = breaker.opens_in_s(now_s)
        assert POLICY.open_s <= wait_s <= POLICY.max_open_s
        now_s += wait_s
        trial = breaker.ask(now_s)
        assert trial is not None
        breaker.failed(trial, now_s)
    assert (breaker.opened, breaker.trials) == (1, trials), "one outage, however many trials it took"
