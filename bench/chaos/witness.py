"""What the broker and its topics tell of a run: positions all the time, answers and dead letters at its end."""

from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import anyio

from bench.chaos.cluster import Cluster
from bench.chaos.facts import Answered, Buried, Committed, Fact
from bench.chaos.ledger import Ledger, now_ns
from infra.kafka import dead_letter
from infra.kafka.connection import KafkaConnection
from infra.kafka.dead_letter import header_text
from infra.kafka.reading import scan
from topics.catalogue import ANSWERS, DEAD_LETTERS, Catalogue
from topics.envelope import decode
from topics.errors import OutageError
from topics.events import AnswerCompleted
from topics.records import RawRecord

SAMPLE_EVERY_S: Final = 0.1


@dataclass(slots=True)
class PositionSampler:
    """Asks for a group's positions, all the time, and writes down each that changed."""

    cluster: Cluster
    group: str
    ledger: Ledger
    samples: int = 0
    _known: dict[str, int] = field(default_factory=dict[str, int])

    async def run(self) -> None:
        """Sample for ever. A broker that is away tells nothing, and that is no finding."""
        while True:
            with suppress(OutageError):
                await self._sample()
            await anyio.sleep(SAMPLE_EVERY_S)

    async def _sample(self) -> None:
        asked_at_ns = now_ns()
        found = await self.cluster.positions(self.group)
        at_ns = now_ns()
        self.samples += len(found)
        for partition, position in found.items():
            if self._known.get(partition) != position:
                self._known[partition] = position
                told = Committed(at_ns=at_ns, who=self.ledger.who, partition=partition, position=position, asked_at_ns=asked_at_ns)
                self.ledger.write(told)


async def outputs(connection: KafkaConnection, catalogue: Catalogue) -> list[Fact]:
    """The answers and dead letters that are on their topics now."""
    return [fact async for fact in _told(connection, catalogue)]


async def _told(connection: KafkaConnection, catalogue: Catalogue) -> AsyncGenerator[Fact]:
    answers, letters = catalogue.name(ANSWERS), catalogue.name(DEAD_LETTERS)
    async with scan(connection, [answers, letters]) as records:
        async for record in records:
            if record.topic == letters:
                yield _buried(record)
                continue
            payload = decode(record, catalogue=catalogue).payload
            if isinstance(payload, AnswerCompleted):
                yield Answered(at_ns=now_ns(), who="witness", event_id=payload.query_id, outcome=payload.text)


def _buried(record: RawRecord) -> Buried:
    def told(name: str) -> str:
        return header_text(record.headers, name) or ""

    return Buried(
        at_ns=now_ns(),
        who="witness",
        partition=f"{told(dead_letter.TOPIC)}/{told(dead_letter.PARTITION)}",
        offset=int(told(dead_letter.OFFSET) or -1),
        reason=told(dead_letter.REASON),
    )
