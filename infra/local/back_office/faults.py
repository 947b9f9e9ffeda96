"""Failures on demand: which of them a call meets. They live in memory and end with the process."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

FaultT = TypeVar("FaultT")

LOOKUP: Final = "lookup"
"""The name a fault uses to meet look-ups of recorded answers. A fault without an operation never meets those."""


class _Fault(BaseModel):
    """Which calls a fault meets.

    `tenant` and `operation` None mean any. `every` = 3 meets the third, sixth, ... of the calls that match; `times` ends the
    fault after it struck so often, None never.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    tenant: str | None = None
    operation: str | None = None
    times: int | None = Field(default=None, ge=1)
    every: int = Field(default=1, ge=1)


class Delay(_Fault):
    """Wait before anything else."""

    kind: Literal["delay"]
    delay_s: float = Field(gt=0, le=600)


class FailBefore(_Fault):
    """Answer with a status and do nothing."""

    kind: Literal["fail_before"]
    status: int = Field(default=503, ge=400, le=599)


class FailAfterEffect(_Fault):
    """Do it, then hide that it was done. Meets mutations only."""

    kind: Literal["fail_after_effect"]
    how: Literal["status", "cut", "delay"] = "status"
    status: int = Field(default=500, ge=400, le=599)
    delay_s: float = Field(default=60.0, gt=0, le=600)


class IgnoreIdempotencyKey(_Fault):
    """Do it again, whatever was done under the same key. Meets mutations only."""

    kind: Literal["ignore_idempotency_key"]


Fault = Annotated[Delay | FailBefore | FailAfterEffect | IgnoreIdempotencyKey, Field(discriminator="kind")]
FAULT: Final[TypeAdapter[Fault]] = TypeAdapter(Fault)


@dataclass(slots=True)
class _Armed:
    fault: Fault
    seen: int = 0
    struck: int = 0

    def strikes(self, *, tenant: str, operation: str, mutates: bool) -> bool:
        fault = self.fault
        if fault.times is not None and self.struck >= fault.times:
            return False
        if fault.tenant not in (None, tenant) or fault.operation not in (None, operation):
            return False
        if fault.operation is None and operation == LOOKUP:
            return False
        if isinstance(fault, FailAfterEffect | IgnoreIdempotencyKey) and not mutates:
            return False
        self.seen += 1
        if self.seen % fault.every:
            return False
        self.struck += 1
        return True


@dataclass(frozen=True, slots=True)
class Strike:
    """What one call meets."""

    delay_s: float = 0.0
    before: FailBefore | None = None
    after: FailAfterEffect | None = None
    ignore_key: bool = False


@dataclass(slots=True)
class Faults:
    """The faults that wait for their calls."""

    _armed: list[_Armed] = field(default_factory=list[_Armed])

    def arm(self, fault: Fault) -> None:
        """Let a fault wait for its calls."""
        self._armed.append(_Armed(fault))

    def clear(self) -> None:
        """Let every call pass from now on."""
        self._armed.clear()

    def shown(self) -> list[dict[str, Any]]:
        """The faults as they were armed, and how often each struck."""
        return [armed.fault.model_dump() | {"struck": armed.struck} for armed in self._armed]

    def strike(self, *, tenant: str, operation: str, mutates: bool) -> Strike:
        """What this call meets: delays add up; of two failures of one kind the first armed counts."""
        struck = [armed.fault for armed in self._armed if armed.strikes(tenant=tenant, operation=operation, mutates=mutates)]
        return Strike(
            delay_s=sum(fault.delay_s for fault in struck if isinstance(fault, Delay)),
            before=_first(struck, FailBefore),
            after=_first(struck, FailAfterEffect),
            ignore_key=_first(struck, IgnoreIdempotencyKey) is not None,
        )


def _first(struck: Sequence[Fault], kind: type[FaultT]) -> FaultT | None:
    return next((fault for fault in struck if isinstance(fault, kind)), None)
