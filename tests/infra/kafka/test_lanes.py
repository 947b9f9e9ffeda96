from collections import defaultdict

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from infra.kafka.lanes import LaneTable


def test_a_key_waits_for_its_own_head_and_nobody_else_does():
    lanes = LaneTable[str]()
    for item in ("a1", "a2", "b1"):
        lanes.push(item[0], item, tenant="t")
    assert lanes.take(0) == ("a", "a1")
    assert lanes.take(0) == ("b", "b1")
    assert lanes.take(0) is None
    lanes.release("a")
    assert lanes.take(0) == ("a", "a2")


def test_a_head_that_waits_is_overtaken_by_other_lanes_only():
    lanes = LaneTable[str]()
    for item in ("a1", "a2", "b1"):
        lanes.push(item[0], item, tenant="t")
    assert lanes.take(0) == ("a", "a1")
    lanes.postpone("a", due_at_s=10)
    assert lanes.take(0) == ("b", "b1")
    assert lanes.take(9.9) is None
    assert lanes.next_due_s() == 10
    assert lanes.take(10) == ("a", "a1")


def test_a_noisy_tenant_does_not_starve_a_quiet_one():
    """P7."""
    lanes = LaneTable[str]()
    for number in range(1000):
        lanes.push(("noisy", number), "noisy", tenant="noisy")
    lanes.push(("quiet", 0), "quiet", tenant="quiet")
    started = [taken[1] for _ in range(4) if (taken := lanes.take(0))]
    assert "quiet" in started


def test_weights_share_slots_out_unevenly():
    lanes = LaneTable[str](weight=lambda tenant: 3 if tenant == "big" else 1)
    for number in range(100):
        lanes.push(("big", number), "big", tenant="big")
        lanes.push(("small", number), "small", tenant="small")
    started = [taken[1] for _ in range(40) if (taken := lanes.take(0))]
    assert started.count("big") == 30


def test_a_dropped_head_makes_way_for_the_next():
    lanes = LaneTable[str]()
    for item in ("a1", "a2"):
        lanes.push("a", item, tenant="t")
    assert lanes.drop(lambda item: item == "a1") == ["a1"]
    assert lanes.ready(0) == 1
    assert lanes.take(0) == ("a", "a2")


def test_a_running_head_survives_a_drop():
    lanes = LaneTable[str]()
    for item in ("a1", "a2"):
        lanes.push("a", item, tenant="t")
    lanes.take(0)
    assert lanes.drop(lambda _: True) == ["a2"]
    lanes.release("a")
    assert len(lanes) == 0
    assert lanes.lanes() == 0


class LanesAgainstAModel(RuleBasedStateMachine):
    """P5: whatever happens, items of a key leave one at a time and in order, and nothing is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.lanes = LaneTable[int]()
        self.model: dict[str, list[int]] = defaultdict(list)
        self.running: set[str] = set()
        self.due: dict[str, float] = {}
        self.now = 0.0
        self.count = 0

    @rule(key=st.sampled_from("abcdef"), tenant=st.sampled_from("xy"))
    def push(self, key: str, tenant: str) -> None:
        self.count += 1
        self.lanes.push(key, self.count, tenant=tenant)
        self.model[key].append(self.count)

    @rule()
    def take(self) -> None:
        taken = self.lanes.take(self.now)
        ready = [k for k, items in self.model.items() if items and k not in self.running and self.due.get(k, 0) <= self.now]
        assert (taken is None) == (not ready)
        if taken:
            key, item = taken
            assert key in ready
            assert item == self.model[key][0]
            self.running.add(key)
            self.due.pop(key, None)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.running)))
        self.lanes.release(key)
        self.model[key].pop(0)
        self.running.discard(key)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), delay=st.floats(0, 5))
    def postpone(self, data: st.DataObject, delay: float) -> None:
        key = data.draw(st.sampled_from(sorted(self.running)))
        self.lanes.postpone(key, due_at_s=self.now + delay)
        self.running.discard(key)
        self.due[key] = self.now + delay

    @rule(step=st.floats(0, 3))
    def wait(self, step: float) -> None:
        self.now += step

    @rule(odd=st.booleans())
    def drop(self, odd: bool) -> None:
        dropped = set(self.lanes.drop(lambda item: item % 2 == odd))
        for key, items in self.model.items():
            kept = [i for n, i in enumerate(items) if not (i % 2 == odd and not (n == 0 and key in self.running))]
            if key not in self.running and items and kept[:1] != items[:1]:
                self.due.pop(key, None)
            assert dropped.issuperset(set(items) - set(kept))
            self.model[key] = kept

    @invariant()
    def counts_agree(self) -> None:
        assert len(self.lanes) == sum(map(len, self.model.values()))
        ready = [k for k, items in self.model.items() if items and k not in self.running and self.due.get(k, 0) <= self.now]
        assert self.lanes.ready(self.now) == len(ready)


TestLanesAgainstAModel = LanesAgainstAModel.TestCase
