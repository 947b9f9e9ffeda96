from infra.claims import Claim
from infra.kafka.assignment import Assignment, Work
from infra.kafka.suspects import Suspects
from topics.records import RawRecord

LIMIT = 5


def work(offset: int, *, starts: int, failures: int = 0) -> Work:
    return Work(
        RawRecord("queries", 0, offset, b"k", b"v"),
        Assignment("queries", 0, 1),
        None,
        claim=Claim("running", starts=starts, failures=failures),
    )


def test_records_that_saw_few_deaths_run_side_by_side():
    suspects = Suspects(crash_limit=LIMIT)
    assert all(suspects.may_start(work(offset, starts=LIMIT - 3)) for offset in range(3))


def test_starts_that_ended_in_a_failure_are_no_deaths():
    suspects = Suspects(crash_limit=LIMIT)
    assert all(suspects.may_start(work(offset, starts=9, failures=8)) for offset in range(3))


def test_suspects_run_one_at_a_time_and_hold_up_nobody_else():
    suspects = Suspects(crash_limit=LIMIT)
    first, second = work(0, starts=LIMIT - 2), work(1, starts=LIMIT - 2)
    assert suspects.may_start(first)
    assert not suspects.may_start(second)
    assert suspects.may_start(work(2, starts=0))
    suspects.ended([work(2, starts=0)])
    assert not suspects.may_start(second), "somebody else had ended"
    suspects.ended([first])
    assert suspects.may_start(second)


def test_the_smallest_limit_suspects_after_one_death():
    suspects = Suspects(crash_limit=1)
    assert suspects.may_start(work(0, starts=1))
    assert not suspects.may_start(work(1, starts=1))
