"""Dead letters for operators: a view of their topics, and the way back.

A replay goes to the input's replay topic, which only our own group reads. Its id is the dead letter's id and a count, so a replay
that is run again, twice at once, or killed half-way adds nothing: the inbox knows the id. An edit goes back under the same id as an
unedited replay would: of several records with one id the first on the topic is the one that counts.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Literal

from infra.kafka import dead_letter as names
from infra.kafka.dead_letter import header_text, original_headers, with_ours
from topics.catalogue import DEAD_LETTERS, Catalogue, TopicSpec
from topics.envelope import decode
from topics.errors import RejectedError, SluiceError
from topics.events import DeadLetterResolved, ValueEdit
from topics.records import Headers, OutboundRecord, RawRecord
from workers import edits

MAX_REPLAYS: Final = 5
MAX_DIGITS: Final = 18  # of an offset
LAST_INSTANT_MS: Final = 253_402_300_799_999  # the end of the year 9999

State = Literal["open", "replayed", "discarded", "exhausted"]
STATES: Final[tuple[State, ...]] = ("open", "replayed", "discarded", "exhausted")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead record as an operator sees it. `replays` counts how often it went back; unreadable counts are the limit.

    `edit` is how its value was changed when it went back last; `is_edited` says that an operator wrote the value that died.
    """

    id: str
    reason: str
    tenant: str
    topic: str
    partition: str
    offset: str
    message: str
    exception: str
    group: str
    first_failed_at_ms: str
    last_failed_at_ms: str
    replays: int
    state: State
    record: RawRecord
    edit: ValueEdit | None = None
    is_edited: bool = False

    @property
    def replay_id(self) -> str:
        """The id under which it goes back next. Whatever went back under it first is what counts."""
        return f"{self.id}:{self.replays + 1}"

    @property
    def original_headers(self) -> Headers:
        """The headers its producer wrote."""
        return original_headers(self.record.headers)


@dataclass(frozen=True, slots=True)
class Filter:
    """Which dead letters are meant; None means any."""

    ids: tuple[str, ...] = ()
    reason: str | None = None
    tenant: str | None = None
    topic: str | None = None
    since_ms: int | None = None

    def matches(self, letter: DeadLetter) -> bool:
        """Whether every part that is set fits."""
        return (
            (not self.ids or letter.id in self.ids)
            and self.reason in {None, letter.reason}
            and self.tenant in {None, letter.tenant}
            and self.topic in {None, letter.topic}
            and (self.since_ms is None or _number(letter.last_failed_at_ms) >= self.since_ms)
        )


class ReplayRefusedError(SluiceError):
    """This dead letter may not go back. It stays as it is."""

    code = "replay_refused"


async def view(records: AsyncIterator[RawRecord], *, catalogue: Catalogue) -> list[DeadLetter]:
    """Build the inbox from the dead letters and their resolutions, in any order; the newest death of a record counts."""
    deaths: dict[str, RawRecord] = {}
    resolutions: dict[str, DeadLetterResolved] = {}
    async for record in records:
        if record.topic == catalogue.name(DEAD_LETTERS):
            found = header_text(record.headers, names.ID)
            if found and (found not in deaths or _replays(record) >= _replays(deaths[found])):
                deaths[found] = record
        elif (resolved := _resolution(record, catalogue)) is not None:
            known = resolutions.get(resolved.dead_letter_id)
            if known is None or _order(resolved) >= _order(known):
                resolutions[resolved.dead_letter_id] = resolved
    letters = [_letter(record, resolutions.get(letter_id)) for letter_id, record in deaths.items()]
    return sorted(letters, key=lambda letter: _number(letter.last_failed_at_ms))


def replay_record(letter: DeadLetter, *, catalogue: Catalogue, actor: str) -> OutboundRecord:
    """The record that goes back: original key, value and headers, its origin, and the replay's id and count.

    Raises:
        ReplayRefusedError: It went back too often, is not open, or its origin is not an input of ours.
    """
    if letter.state != "open":
        raise ReplayRefusedError(f"{letter.id} is {letter.state}", code=letter.state)
    spec = next((spec for spec in _inputs(catalogue) if catalogue.name(spec) == letter.topic), None)
    if spec is None:
        raise ReplayRefusedError(f"{letter.id} came from {letter.topic!r}, which is no input of ours", code="not_allowed")
    if not (_is_number(letter.partition) and _is_number(letter.offset)):
        raise ReplayRefusedError(f"{letter.id} does not say which position it came from", code="not_allowed")
    count = letter.replays + 1
    ours = {
        names.TOPIC: letter.topic,
        names.PARTITION: letter.partition,
        names.OFFSET: letter.offset,
        names.TIMESTAMP: header_text(letter.record.headers, names.TIMESTAMP) or "",
        names.FIRST_FAILED_AT: letter.first_failed_at_ms,
        names.REPLAY_ID: letter.replay_id,
        names.REPLAY_COUNT: str(count),
        names.REPLAY_ACTOR: actor,
    }
    headers = with_ours(letter.original_headers, ours)
    return OutboundRecord(catalogue.replay_name(spec), letter.record.key, letter.record.value, headers)


def edited_record(letter: DeadLetter, value: bytes, *, catalogue: Catalogue, actor: str) -> OutboundRecord:
    """The same with another value, marked by the digest of the one that it replaces. Key and headers stay the producer's.

    Raises:
        ReplayRefusedError: As for an unedited one.
        EditRefusedError: With this value it would be malformed again.
    """
    out = replay_record(letter, catalogue=catalogue, actor=actor)
    mark = (names.REPLAY_EDITED, (edits.sha256(letter.record.value) or "tombstone").encode())
    edited = replace(out, value=value, headers=(*out.headers, mark))
    try:
        decode(RawRecord(edited.topic, 0, 0, edited.key, value, edited.headers), catalogue=catalogue)
    except RejectedError as error:
        raise edits.EditRefusedError(f"it would die again: {error}", code=error.reason_code) from error
    return edited


def replay_topics(letters: Iterable[DeadLetter], *, catalogue: Catalogue) -> list[str]:
    """Where these letters go back to. Those that came from no input of ours go nowhere."""
    topics = {letter.topic for letter in letters}
    return [catalogue.replay_name(spec) for spec in _inputs(catalogue) if catalogue.name(spec) in topics]


async def went_back_first(records: AsyncIterator[RawRecord]) -> dict[str, RawRecord]:
    """Of the replays on the topics, by replay id, the one that counts: all of one key lie in one partition."""
    first: dict[str, RawRecord] = {}
    async for record in records:
        replay_id = header_text(record.headers, names.REPLAY_ID)
        if replay_id and (replay_id not in first or _place(record) < _place(first[replay_id])):
            first[replay_id] = record
    return first


def resolution(
    letter: DeadLetter,
    *,
    action: Literal["replayed", "discarded"],
    operator: str,
    reason: str,
    now: datetime,
    edit: ValueEdit | None = None,
) -> DeadLetterResolved:
    """What is written once it went back, perhaps edited, or was discarded.

    Raises:
        ReplayRefusedError: A discard or an edit without a reason.
    """
    if (action == "discarded" or edit) and not reason.strip():
        raise ReplayRefusedError(f"{'an edit' if edit else 'a discard'} needs a reason", code="reason_missing")
    count = letter.replays + (action == "replayed")
    return DeadLetterResolved(
        dead_letter_id=letter.id,
        action=action,
        operator=operator,
        reason=reason,
        replay_count=count,
        edit=edit,
        resolved_at=now,
    )


def select(letters: Iterable[DeadLetter], wanted: Filter, *, states: Sequence[State] = ("open",)) -> list[DeadLetter]:
    """The dead letters that are meant and in one of these states."""
    return [letter for letter in letters if letter.state in states and wanted.matches(letter)]


def instant(epoch_ms: str) -> str:
    """Epoch milliseconds for people; empty when unknown."""
    known = _number(epoch_ms)
    if not 0 < known <= LAST_INSTANT_MS:
        return ""
    return datetime.fromtimestamp(known / 1000, UTC).isoformat(timespec="seconds")


def _letter(record: RawRecord, resolved: DeadLetterResolved | None) -> DeadLetter:
    def text(name: str) -> str:
        return header_text(record.headers, name) or ""

    replays = _replays(record)
    return DeadLetter(
        id=text(names.ID),
        reason=text(names.REASON),
        tenant=text(names.TENANT),
        topic=text(names.TOPIC),
        partition=text(names.PARTITION),
        offset=text(names.OFFSET),
        message=text(names.MESSAGE),
        exception=text(names.EXCEPTION),
        group=text(names.GROUP),
        first_failed_at_ms=text(names.FIRST_FAILED_AT),
        last_failed_at_ms=text(names.LAST_FAILED_AT),
        replays=replays,
        state=_state(replays, resolved),
        record=record,
        edit=resolved.edit if resolved else None,
        is_edited=bool(text(names.REPLAY_EDITED)),
    )


def _state(replays: int, resolved: DeadLetterResolved | None) -> State:
    if resolved is not None and resolved.action == "replayed" and resolved.replay_count > replays:
        return "replayed"
    if resolved is not None and resolved.action == "discarded" and resolved.replay_count >= replays:
        return "discarded"
    return "exhausted" if replays >= MAX_REPLAYS else "open"


def _replays(record: RawRecord) -> int:
    """How often it went back. A count that cannot be read is the limit: a loop must not restart at zero."""
    text = header_text(record.headers, names.REPLAY_COUNT)
    if text is None:
        return 0
    return min(int(text), MAX_REPLAYS) if _is_number(text) else MAX_REPLAYS


def _is_number(text: str) -> bool:
    """Digits that are a count, an offset or an instant; anything else in their place is never computed with."""
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS


def _number(text: str) -> int:
    return int(text) if _is_number(text) else 0


def _order(resolved: DeadLetterResolved) -> tuple[int, bool, datetime]:
    # Who writes that it went back edited has seen the edit come first; who went without an edit need not have looked.
    return resolved.replay_count, resolved.edit is not None, resolved.resolved_at


def _place(record: RawRecord) -> tuple[int, int]:
    return record.offset, record.partition


def _resolution(record: RawRecord, catalogue: Catalogue) -> DeadLetterResolved | None:
    try:
        payload = decode(record, catalogue=catalogue).payload
    except (RejectedError, LookupError):
        return None
    return payload if isinstance(payload, DeadLetterResolved) else None


def _inputs(catalogue: Catalogue) -> list[TopicSpec]:
    return [spec for topic, spec in catalogue.all_names().items() if spec.direction == "in" and not catalogue.is_replay(topic)]
