"""Small histories by hand, for tests of what is made of them."""

from typing import Any

from bench.chaos.account import Account
from bench.chaos.facts import (
    Answered,
    Assigned,
    Begun,
    Buried,
    Claimed,
    Committed,
    Disturbed,
    EffectKind,
    Ended,
    Fact,
    Granted,
    Joined,
    Left,
    Performed,
    Published,
    Sampled,
    Settled,
    Started,
)

S = 1_000_000_000


class History:
    """Records of one partition, and what happens to them; every call is a second later than the one before."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.at_ns = 0

    def account(self) -> Account:
        return Account(self.facts)

    def later(self, seconds: float) -> "History":
        self.at_ns += int(seconds * S)
        return self

    def _add(self, kind: type[Fact], who: str, /, **fields: Any) -> "History":
        self.facts.append(kind(at_ns=self.at_ns, who=who, **fields))
        return self.later(1)

    def publish(self, *offsets: int, effect: EffectKind = "write", key: str = "k") -> "History":
        for offset in offsets:
            name = {"event_id": f"q{offset}", "claim_id": f"c{offset}", "key": key}
            self._add(Published, "conductor", **name, partition="t/0", offset=offset, effect=effect)
        return self

    def claim(self, offset: int, who: str = "a") -> "History":
        return self._add(Claimed, who, claim_ids=[f"c{offset}"])

    def start(self, offset: int, who: str = "a", *, epoch: int = 1, key: str = "k") -> "History":
        return self._add(Started, who, event_id=f"q{offset}", key=key, partition="t/0", offset=offset, epoch=epoch)

    def end(self, offset: int, who: str = "a", outcome: str = "done", *, epoch: int = 1, key: str = "k") -> "History":
        place = {"event_id": f"q{offset}", "key": key, "partition": "t/0", "offset": offset, "epoch": epoch}
        return self._add(Ended, who, **place, outcome=outcome)

    def settle(self, offset: int, who: str = "a", state: str = "done") -> "History":
        return self._add(Settled, who, claim_id=f"c{offset}", state=state)

    def perform(
        self, offset: int, who: str = "a", *, applied: bool = True, kind: EffectKind = "write", key: str = "k"
    ) -> "History":
        return self._add(Performed, who, event_id=f"q{offset}", key=key, kind=kind, fence=1, applied=applied)

    def answer(self, offset: int, outcome: str = "done") -> "History":
        return self._add(Answered, "witness", event_id=f"q{offset}", outcome=outcome)

    def bury(self, offset: int) -> "History":
        return self._add(Buried, "witness", partition="t/0", offset=offset, reason="poison")

    def commit(self, position: int) -> "History":
        return self._add(Committed, "conductor", partition="t/0", position=position, asked_at_ns=self.at_ns)

    def grant(self, fence: int, who: str) -> "History":
        return self._add(Granted, who, event_id="q0", key="k", fence=fence)

    def begin(self, offset: int, fence: int, who: str, state: str = "new", *, asked_s_ago: float = 0.0) -> "History":
        asked_at_ns = self.at_ns - int(asked_s_ago * S)
        return self._add(Begun, who, event_id=f"q{offset}", key="k", fence=fence, asked_at_ns=asked_at_ns, state=state)

    def disturb(self, kind: str, target: str = "a", *, ends: bool = False) -> "History":
        return self._add(Disturbed, "conductor", kind=kind, target=target, ends=ends)

    def join(self, who: str) -> "History":
        return self._add(Joined, who, pid=1)

    def assign(self, who: str) -> "History":
        return self._add(Assigned, who, partitions=["t/0"])

    def leave(self, who: str, *, code: int = 0, seconds: float = 1.0) -> "History":
        return self._add(Left, who, code=code, seconds=seconds)

    def sample(self, who: str = "a", *, running: int = 1, buffered: int = 1, rss_mb: float = 100.0) -> "History":
        return self._add(Sampled, who, running=running, buffered=buffered, rss_mb=rss_mb, cpu_s=1.0)

    def handle(self, offset: int, who: str = "a", *, epoch: int = 1, key: str = "k") -> "History":
        """A record's whole good life."""
        self.start(offset, who, epoch=epoch, key=key).perform(offset, who, key=key).end(offset, who, epoch=epoch, key=key)
        return self.settle(offset, who).answer(offset)
