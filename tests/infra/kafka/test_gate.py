from infra.kafka.flood import FloodGuard
from infra.kafka.gate import IntakeGate


def test_after_an_outage_one_trial_runs_and_its_success_opens_the_gate():
    gate = IntakeGate()
    assert gate.allowance(0) is None
    assert gate.outage(until_s=5, reason="down")
    assert gate.allowance(4) == 0
    assert gate.allowance(5) == 1
    gate.started()
    assert gate.allowance(6) == 0
    assert gate.succeeded()
    assert gate.allowance(6) is None


def test_a_failed_trial_shuts_it_again_and_is_not_a_new_outage():
    gate = IntakeGate()
    gate.outage(until_s=5, reason="down")
    gate.started()
    assert not gate.outage(until_s=9, reason="down")
    assert gate.allowance(8) == 0
    assert gate.allowance(9) == 1


def test_a_long_run_of_dead_letters_is_a_flood():
    guard = FloodGuard(max_run=3)
    assert [guard.ended(dead=True) for _ in range(3)] == [False, False, True]
    assert not guard.ended(dead=True)


def test_too_large_a_share_of_dead_letters_is_a_flood():
    guard = FloodGuard(max_run=100, max_share=0.4, window=10)
    assert [guard.ended(dead=number % 2 == 0) for number in range(10)][-1]


def test_now_and_then_a_dead_letter_is_no_flood():
    guard = FloodGuard(max_run=3, max_share=0.5, window=10)
    assert not any(guard.ended(dead=number % 4 == 0) for number in range(1000))
