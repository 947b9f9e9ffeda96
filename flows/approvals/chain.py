"""Whether the outcomes on the topic are the ones that were written, all of them, and in which order: proven from the topic alone.

Every link binds its outcome to the one before, so a record that is changed, left out, put in or numbered anew breaks the chain.
Where a record lies in the log does not matter, and the same record twice is the same record: delivery is at least once.
What the end should be only its head in Redis can tell. Where retention took records away, the rest is proven from a number on.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, cast

from topics.chain import GENESIS, digest_of

# A record may lie behind one that got its link a little later, and workers' clocks differ.
OVERLAP: Final = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Written:
    """One record of the topic. `wire` is its payload as it stands there; `problem` says why it is no outcome."""

    where: str
    partition: int
    tenant: str = ""
    event_id: str = ""
    event_type: str = ""
    wire: Mapping[str, Any] | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Cut:
    """A partition whose beginning is gone. `until` is when its first record was linked, None when it has none left."""

    partition: int
    until: datetime | None


class Head(Protocol):
    """The last link that was given, and the numbers that may not be on the topic yet."""

    @property
    def number(self) -> int:
        """The number of the last link."""
        ...

    @property
    def digest(self) -> str:
        """Its digest."""
        ...

    @property
    def untold(self) -> frozenset[int]:
        """Numbers that may not be on the topic yet."""
        ...


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong, at a record or, where one is missing, behind the last good one."""

    tenant: str
    number: int
    where: str
    event_id: str
    what: str


@dataclass(frozen=True, slots=True)
class Proof:
    """What is proven of one tenant: the outcomes from `first` to `last`. `untold` have a number and are not published yet."""

    first: int
    last: int
    digest: str
    untold: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Findings:
    """What an audit found. Faults in the order in which they happened; the first one is the first bad record of its tenant."""

    records: int
    proofs: dict[str, Proof]
    faults: tuple[Fault, ...]


@dataclass(slots=True)
class _Link:
    number: int
    previous: str
    digest: str
    at: datetime
    where: str
    event_id: str


@dataclass(slots=True)
class _Chain:
    """The links of one tenant by number."""

    tenant: str
    links: dict[int, _Link] = field(default_factory=dict[int, _Link])
    faults: list[Fault] = field(default_factory=list[Fault])

    def add(self, record: Written) -> None:
        """Take a record in, or say what is wrong with it by itself."""
        link, problem = _read(record)
        if link is None:
            number = _number(record)
            self.faults.append(Fault(self.tenant, number, record.where, record.event_id, problem))
            return
        known = self.links.setdefault(link.number, link)
        if known.digest != link.digest:
            self.fault(link, f"a second outcome has the number {link.number}; the other one is at {known.where}")

    def fault(self, link: _Link, what: str) -> None:
        """Note a fault at a link."""
        self.faults.append(Fault(self.tenant, link.number, link.where, link.event_id, what))


@dataclass(slots=True)
class Audit:
    """Takes records in, in any order, and says what they prove. Of each it keeps the link and the place, not the content."""

    _chains: dict[str, _Chain] = field(default_factory=dict[str, _Chain])
    _records: int = 0

    def add(self, record: Written) -> None:
        """Take one record in."""
        self._records += 1
        self._chains.setdefault(record.tenant, _Chain(record.tenant)).add(record)

    def findings(
        self,
        *,
        cuts: Sequence[Cut] = (),
        before: Mapping[str, Head] | None = None,
        after: Mapping[str, Head] | None = None,
    ) -> Findings:
        """What is proven and what is wrong. To be asked once.

        Args:
            cuts: Partitions whose beginning is gone: what is missing may have been there.
            before: Heads as they were before the topic was read: all of that must be on it, and what was given meanwhile may lie
                behind the end up to which its partition was read. None when Redis was not asked.
            after: Heads as they were afterwards: nothing beyond can be on it.
        """
        proofs: dict[str, Proof] = {}
        tenants: set[str] = {*self._chains, *(before or {})}
        for tenant in sorted(tenants):
            chain = self._chains.setdefault(tenant, _Chain(tenant))
            proof = _prove(chain, cuts, _Given.of(before, tenant))
            if proof:
                proofs[tenant] = proof
            if before is not None and tenant in before:
                _reaches(chain, before[tenant], cuts)
            if after is not None and chain.links:
                _within(chain, after.get(tenant))
        faults = (fault for tenant in sorted(tenants) for fault in sorted(self._chains[tenant].faults, key=_by_number))
        return Findings(self._records, proofs, tuple(faults))


def _by_number(fault: Fault) -> int:
    return fault.number


@dataclass(frozen=True, slots=True)
class _Given:
    """What was given before the topic was read: numbers up to `last`, None where nobody knows; `untold` need not be there yet."""

    last: int | None = None
    untold: frozenset[int] = frozenset()

    @classmethod
    def of(cls, heads: Mapping[str, Head] | None, tenant: str) -> "_Given":
        if heads is None:
            return cls()
        head = heads.get(tenant)
        return cls(head.number, head.untold) if head else cls(0)


@dataclass(frozen=True, slots=True)
class _Missing:
    """Numbers that should be there. They are never listed: a number that somebody made up leaves out as many as it likes."""

    numbers: range
    untold: frozenset[int]

    def __len__(self) -> int:
        return len(self.numbers) - sum(one in self.numbers for one in self.untold) if self.numbers else 0

    def __iter__(self) -> Iterator[int]:
        return (one for one in self.numbers if one not in self.untold)

    def __reversed__(self) -> Iterator[int]:
        return (one for one in reversed(self.numbers) if one not in self.untold)

    def __str__(self) -> str:
        count, first, last = len(self), next(iter(self)), next(reversed(self))
        if count == 1:
            return f"number {first}"
        return f"numbers {first} to {last}" if last - first + 1 == count else f"{count} numbers from {first} to {last}"


def _prove(chain: _Chain, cuts: Sequence[Cut], given: _Given) -> Proof | None:
    """Walk from the first link to the last. What is proven ends where one may be missing that was given meanwhile."""
    if not chain.links:
        return None
    first, before, last = min(chain.links), None, None
    numbered = {fault.number for fault in chain.faults}
    for number in sorted(chain.links):
        link = chain.links[number]
        follows = before.number + 1 if before else 1
        must_be_there = number if given.last is None else min(number, given.last + 1)
        missing = _Missing(range(follows, must_be_there), given.untold)
        if missing and not _explained(before, cuts):
            # A record with that number may be there, and is told already.
            if len(missing) > len(numbered) or not numbered.issuperset(missing):
                chain.fault(link, f"{missing} before it {'is' if len(missing) == 1 else 'are'} missing")
        elif missing:
            first = number
        elif number == follows and link.previous != (before.digest if before else GENESIS):
            chain.fault(link, f"it does not follow what stands before it, number {number - 1}")
        if last is before and number in {follows, must_be_there}:
            last = link
        before = link
    return Proof(first, last.number, last.digest, tuple(sorted(given.untold - chain.links.keys()))) if last else None


def _explained(before: _Link | None, cuts: Sequence[Cut]) -> bool:
    """Whether retention can have taken what stood behind this link: some partition was cut later than it was written."""
    return any(before is None or cut.until is None or before.at - cut.until <= OVERLAP for cut in cuts)


def _reaches(chain: _Chain, head: Head, cuts: Sequence[Cut]) -> None:
    """Whether the topic reaches the link that Redis knew to be the last one."""
    known, last = chain.links.get(head.number), _last(chain)
    if known and known.digest != head.digest:
        chain.fault(known, f"Redis has another digest for number {head.number}")
    end = last.number if last else 0
    missing = _Missing(range(end + 1, head.number + 1), head.untold)
    if missing and (last or not cuts):
        where, event_id = (last.where, last.event_id) if last else ("", "")
        what = f"behind it the end is missing: {missing}"
        chain.faults.append(Fault(chain.tenant, end + 1, where, event_id, what))


def _within(chain: _Chain, head: Head | None) -> None:
    """Whether Redis gave every number that the topic has."""
    last = _last(chain)
    if last and (head is None or last.number > head.number):
        known = f"knows {head.number} numbers" if head else "has no chain"
        chain.fault(last, f"Redis {known} of this tenant: written by somebody else, or Redis has lost what it knew")


def _last(chain: _Chain) -> _Link | None:
    return chain.links[max(chain.links)] if chain.links else None


def _read(record: Written) -> tuple[_Link | None, str]:
    if record.wire is None or record.problem:
        return None, record.problem
    found: Any = record.wire.get("chain")
    try:
        digest = digest_of(dict(record.wire), event_type=record.event_type, tenant=record.tenant)
        link = _Link(
            found["number"], found["previous"], found["digest"], datetime.fromisoformat(found["at"]), record.where, record.event_id
        )
    except (ValueError, TypeError, KeyError):
        return None, "it has no link of the chain"
    # Whoever may write to the topic may link anything, with the digest that is right for it.
    if digest != link.digest or type(link.number) is not int or link.number < 1 or link.at.tzinfo is None:
        return None, "its content is not what was linked"
    return link, ""


def _number(record: Written) -> int:
    """The number that a bad record says it has; 0 when it says none."""
    link: Any = (record.wire or {}).get("chain")
    number: Any = cast("dict[str, Any]", link).get("number") if isinstance(link, dict) else None
    return number if isinstance(number, int) else 0
