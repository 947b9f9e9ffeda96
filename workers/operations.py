"""What operators do with dead letters, on a real cluster: load the inbox, send back, edited or not, give up."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import anyio

from infra.clock import SystemClock
from infra.kafka import dead_letter as names
from infra.kafka.dead_letter import header_text
from infra.kafka.publisher import EventPublisher, RawProducer, event_broker, raw_producer
from infra.kafka.reading import scan
from infra.settings import Settings
from topics.catalogue import DEAD_LETTERS, RESOLUTIONS, Catalogue
from topics.envelope import encode
from topics.events import ValueEdit
from topics.records import RawRecord
from workers import dead_letters, edits
from workers.dead_letters import DeadLetter, Filter, ReplayRefusedError, State
from workers.edits import EditRefusedError

OPERATORS_TENANT: Final = "operators"


@dataclass(slots=True)
class Replayed:
    """Which dead letters went back, and why others did not."""

    done: list[str] = field(default_factory=list[str])
    refused: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class Operations:
    """The inbox of dead letters, and the ways out of it."""

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
        first = await self._went_back_first(letters)
        async with (
            event_broker(self.settings.kafka(), client_id="sluice-dead") as broker,
            raw_producer(self.settings.kafka()) as producer,
        ):
            for letter in letters:
                try:
                    await self._replay(producer, EventPublisher(broker), letter, first.get(letter.replay_id), dry_run=dry_run)
                except (ReplayRefusedError, EditRefusedError) as error:
                    outcome.refused.append(str(error))
                    continue
                outcome.done.append(letter.id)
                if not dry_run:
                    await anyio.sleep(1 / rate_per_s)
        return outcome

    async def edit(self, letter: DeadLetter, value: bytes, *, reason: str, dry_run: bool = False) -> ValueEdit:
        """Send a dead letter back with another value, and keep what was changed. Running it again adds nothing.

        Raises:
            ReplayRefusedError: There is no reason, the letter may not go back, or something else of it went back first.
                In the last case a copy lies on the replay topic, and nothing comes of it.
            EditRefusedError: Nothing was changed, or the new value would die as malformed. Nothing was written.
        """
        if not reason.strip():
            raise ReplayRefusedError("an edit needs a reason", code="reason_missing")
        now = dead_letters.select(await self.load(), Filter((letter.id,)), states=dead_letters.STATES)
        if [one.replays for one in now] != [letter.replays]:
            raise ReplayRefusedError(f"{letter.id} has died again, or is gone: look at it anew", code="changed_meanwhile")
        edit = edits.edit_of(letter.record.value, value)
        record = dead_letters.edited_record(now[0], value, catalogue=self._catalogue, actor=self.operator)
        if dry_run:
            return edit
        async with (
            event_broker(self.settings.kafka(), client_id="sluice-dead") as broker,
            raw_producer(self.settings.kafka()) as producer,
        ):
            await producer.write(record)
            first = (await self._went_back_first([letter])).get(letter.replay_id)
            if first is None or first.value != value:
                raise ReplayRefusedError(f"{letter.id} had gone back before this edit", code="beaten")
            await self._resolve(EventPublisher(broker), letter, "replayed", reason, edit)
        return edit

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

    async def _went_back_first(self, letters: Sequence[DeadLetter]) -> dict[str, RawRecord]:
        topics = dead_letters.replay_topics(letters, catalogue=self._catalogue)
        if not topics:
            return {}
        async with scan(self.settings.kafka(), topics) as records:
            return await dead_letters.went_back_first(records)

    async def _replay(
        self, producer: RawProducer, publisher: EventPublisher, letter: DeadLetter, first: RawRecord | None, *, dry_run: bool
    ) -> None:
        record = dead_letters.replay_record(letter, catalogue=self._catalogue, actor=self.operator)
        if dry_run:
            return
        if first is not None and first.value != letter.record.value:
            # An edit that was killed before it could say so is what runs. The old value is not sent behind it: malformed, it
            # would die before anybody asks whether its id is done.
            edit = edits.edit_of(letter.record.value, first.value)
            reason = f"edited by {header_text(first.headers, names.REPLAY_ACTOR)}, who was cut off"
            await self._resolve(publisher, letter, "replayed", reason, edit)
            return
        # The record first: killed in between, the same replay is sent again, and its id lets the inbox drop it.
        await producer.write(record)
        await self._resolve(publisher, letter, "replayed", "")

    async def _resolve(
        self,
        publisher: EventPublisher,
        letter: DeadLetter,
        action: Literal["replayed", "discarded"],
        reason: str,
        edit: ValueEdit | None = None,
    ) -> None:
        now = SystemClock().now()
        payload = dead_letters.resolution(letter, action=action, operator=self.operator, reason=reason, now=now, edit=edit)
        record = encode(
            payload, catalogue=self._catalogue, tenant=OPERATORS_TENANT, source="sluice-dead", now=now, ordinal=secrets.token_hex(4)
        )
        await (await publisher.send(record))
