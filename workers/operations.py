"""What operators do with dead letters, on a real cluster: load the inbox, send back, give up."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import anyio

from infra.clock import SystemClock
from infra.kafka.publisher import EventPublisher, RawProducer, event_broker, raw_producer
from infra.kafka.reading import scan
from infra.settings import Settings
from topics.catalogue import DEAD_LETTERS, RESOLUTIONS, Catalogue
from topics.envelope import encode
from workers import dead_letters
from workers.dead_letters import DeadLetter, Filter, ReplayRefusedError, State

OPERATORS_TENANT: Final = "operators"


@dataclass(slots=True)
class Replayed:
    """Which dead letters went back, and why others did not."""

    done: list[str] = field(default_factory=list[str])
    refused: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class Operations:
    """The inbox of dead letters, and the two ways out of it."""

    settings: Settings
    operator: str

    async def load(self) -> list[DeadLetter]:
        """Read the dead letters and their resolutions as they stand now."""
        topics = [self._catalogue.name(DEAD_LETTERS), self._catalogue.name(RESOLUTIONS)]
        async with scan(self.settings.kafka(), topics) as records:
            return await dead_letters.view(records, catalogue=self._catalogue)

    async def replay(self, wanted: Filter, *, rate_per_s: float = 50.0, dry_run: bool = False) -> Replayed:
        """Send the wanted dead letters back, at most `rate_per_s`. A letter that may not go back stops no other."""
        states: Sequence[State] = dead_letters.STATES if wanted.ids else ("open",)
        outcome = Replayed()
        letters = dead_letters.select(await self.load(), wanted, states=states)
        async with (
            event_broker(self.settings.kafka(), client_id="sluice-dead") as broker,
            raw_producer(self.settings.kafka()) as producer,
        ):
            for letter in letters:
                try:
                    await self._replay(producer, EventPublisher(broker), letter, dry_run=dry_run)
                except ReplayRefusedError as error:
                    outcome.refused.append(str(error))
                    continue
                outcome.done.append(letter.id)
                if not dry_run:
                    await anyio.sleep(1 / rate_per_s)
        return outcome

    async def discard(self, wanted: Filter, *, reason: str, dry_run: bool = False) -> list[str]:
        """Give the wanted dead letters up. Returns their ids.

        Raises:
            ReplayRefusedError: No reason was given. Nothing was written.
        """
        if not reason.strip():
            raise ReplayRefusedError("a discard needs a reason", code="reason_missing")
        found = dead_letters.select(await self.load(), wanted, states=("open", "exhausted"))
        if not dry_run:
            async with event_broker(self.settings.kafka(), client_id="sluice-dead") as broker:
                for letter in found:
                    await self._resolve(EventPublisher(broker), letter, "discarded", reason)
        return [letter.id for letter in found]

    @property
    def _catalogue(self) -> Catalogue:
        return Catalogue(self.settings.topic_prefix)

    async def _replay(self, producer: RawProducer, publisher: EventPublisher, letter: DeadLetter, *, dry_run: bool) -> None:
        record = dead_letters.replay_record(letter, catalogue=self._catalogue, actor=self.operator)
        if dry_run:
            return
        # The record first: killed in between, the same replay is sent again, and its id lets the inbox drop it.
        await producer.write(record)
        await self._resolve(publisher, letter, "replayed", "")

    async def _resolve(
        self, publisher: EventPublisher, letter: DeadLetter, action: Literal["replayed", "discarded"], reason: str
    ) -> None:
        now = SystemClock().now()
        payload = dead_letters.resolution(letter, action=action, operator=self.operator, reason=reason, now=now)
        record = encode(
            payload, catalogue=self._catalogue, tenant=OPERATORS_TENANT, source="sluice-dead", now=now, ordinal=secrets.token_hex(4)
        )
        await (await publisher.send(record))
