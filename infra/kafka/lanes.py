"""Key -> FIFO lane; ready lanes are shared out to tenants by deficit round robin. Pure: no clock, no client.

A lane is waiting (its head is not due), ready, or running (its head is being handled). Only the head of a lane ever leaves.
Source: promises P5 and P7; Shreedhar and Varghese 1995 for the round robin.
"""

import heapq
import itertools
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Lane(Generic[T]):
    tenant: str
    items: deque[T] = field(default_factory=deque[T])
    running: bool = False
    ready: bool = False
    ticket: int = 0  # the one queue entry that counts; older entries of this lane are void


@dataclass(slots=True)
class _Tenant:
    ready: deque[tuple[Hashable, int]] = field(default_factory=deque[tuple[Hashable, int]])
    deficit: float = 0.0


class LaneTable(Generic[T]):
    """All lanes of one route.

    Args:
        weight: How many records a tenant may start per turn; 1 for everybody unless told otherwise.
    """

    def __init__(self, *, weight: Callable[[str], float] = lambda _: 1.0) -> None:
        self._weight = weight
        self._lanes: dict[Hashable, _Lane[T]] = {}
        self._ring: OrderedDict[str, _Tenant] = OrderedDict()
        self._waiting: list[tuple[float, int, Hashable]] = []
        self._tickets = itertools.count(1)
        self._ready = 0

    def push(self, key: Hashable, item: T, *, tenant: str, due_at_s: float | None = None) -> None:
        """Put an item at the end of its lane. `due_at_s` counts only when it becomes the head at once."""
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(tenant)
        lane.items.append(item)
        if len(lane.items) == 1 and not lane.running:
            self._offer(key, lane, due_at_s)

    def take(self, now_s: float) -> tuple[Hashable, T] | None:
        """The next head to handle, or None when no lane is ready. Its lane is running until `release` or `postpone`."""
        self._wake(now_s)
        while self._ring:
            name, tenant = next(iter(self._ring.items()))
            self._drop_void(tenant)
            if not tenant.ready:
                del self._ring[name]
                continue
            if tenant.deficit < 1:
                tenant.deficit += max(self._weight(name), 0.01)
                self._ring.move_to_end(name)
                continue
            tenant.deficit -= 1
            key, _ = tenant.ready.popleft()
            self._ready -= 1
            lane = self._lanes[key]
            lane.running, lane.ready, lane.ticket = True, False, 0
            return key, lane.items[0]
        return None

    def release(self, key: Hashable) -> None:
        """The head is finished: drop it, and let the next one be the head."""
        lane = self._lanes[key]
        lane.running = False
        if lane.items:
            lane.items.popleft()
        self._offer_or_forget(key, lane)

    def postpone(self, key: Hashable, *, due_at_s: float) -> None:
        """The head must run again, not before `due_at_s`. Nobody overtakes it in its lane, and it holds no slot."""
        lane = self._lanes[key]
        lane.running = False
        if lane.items:
            self._offer(key, lane, due_at_s)
        else:
            self._offer_or_forget(key, lane)

    def drop(self, unwanted: Callable[[T], bool]) -> list[T]:
        """Remove queued items that are not running, keeping the order of the rest."""
        dropped: list[T] = []
        for key, lane in list(self._lanes.items()):
            kept: deque[T] = deque()
            head_changed = False
            for index, item in enumerate(lane.items):
                if unwanted(item) and not (index == 0 and lane.running):
                    dropped.append(item)
                    head_changed |= index == 0
                else:
                    kept.append(item)
            lane.items = kept
            if head_changed:
                self._void(lane)
                self._offer_or_forget(key, lane)
        return dropped

    def next_due_s(self) -> float | None:
        """When the next waiting lane becomes ready, or None."""
        while self._waiting and not self._is_current(self._waiting[0][2], self._waiting[0][1]):
            heapq.heappop(self._waiting)
        return self._waiting[0][0] if self._waiting else None

    def ready(self, now_s: float) -> int:
        """How many lanes could start now."""
        self._wake(now_s)
        return self._ready

    def __len__(self) -> int:
        return sum(len(lane.items) for lane in self._lanes.values())

    def lanes(self) -> int:
        """How many lanes hold something."""
        return len(self._lanes)

    def _offer_or_forget(self, key: Hashable, lane: _Lane[T]) -> None:
        if lane.items:
            self._offer(key, lane, None)
        elif not lane.running:
            del self._lanes[key]

    def _offer(self, key: Hashable, lane: _Lane[T], due_at_s: float | None) -> None:
        lane.ticket = next(self._tickets)
        if due_at_s is None:
            self._make_ready(key, lane)
        else:
            heapq.heappush(self._waiting, (due_at_s, lane.ticket, key))

    def _make_ready(self, key: Hashable, lane: _Lane[T]) -> None:
        self._ring.setdefault(lane.tenant, _Tenant()).ready.append((key, lane.ticket))
        lane.ready = True
        self._ready += 1

    def _wake(self, now_s: float) -> None:
        while self._waiting and self._waiting[0][0] <= now_s:
            _, ticket, key = heapq.heappop(self._waiting)
            if self._is_current(key, ticket):
                self._make_ready(key, self._lanes[key])

    def _void(self, lane: _Lane[T]) -> None:
        self._ready -= lane.ready
        lane.ready, lane.ticket = False, 0

    def _drop_void(self, tenant: _Tenant) -> None:
        while tenant.ready and not self._is_current(*tenant.ready[0]):
            tenant.ready.popleft()

    def _is_current(self, key: Hashable, ticket: int) -> bool:
        lane = self._lanes.get(key)
        return lane is not None and not lane.running and lane.ticket == ticket
