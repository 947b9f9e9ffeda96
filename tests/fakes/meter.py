"""A meter that remembers, and refuses what it is told to."""

from dataclasses import dataclass, field

import anyio.lowlevel

from infra.models.metering import Call, Usage
from topics.errors import SluiceError


@dataclass
class Ledger:
    """`refusals`: by a provider or by a tenant."""

    admitted: list[Call] = field(default_factory=list)
    settled: list[tuple[str, Usage | None]] = field(default_factory=list)
    refusals: dict[str, SluiceError] = field(default_factory=dict)

    async def admit(self, call: Call) -> None:
        for name in {call.provider, call.tenant} & self.refusals.keys():
            raise self.refusals[name]
        self.admitted.append(call)

    async def settle(self, call: Call, usage: Usage | None) -> None:
        await anyio.lowlevel.checkpoint()
        self.settled.append((call.provider, usage))
