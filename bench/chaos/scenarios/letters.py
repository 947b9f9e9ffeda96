"""Dead letters as they lie on their topic, held against what was sent. The comparison is pure."""

from collections import Counter
from collections.abc import Iterable, Sequence

from bench.chaos.world import World
from infra.kafka.dead_letter import REASON, header_text, original_headers
from infra.kafka.reading import scan
from topics.catalogue import DEAD_LETTERS
from topics.records import Headers, OutboundRecord, RawRecord

CASE = "x-case"
EVENT_ID = "ce_id"

Bytes = tuple[bytes | None, bytes | None, Headers]


async def dead_letters_of(world: World) -> list[RawRecord]:
    """Every dead letter of a run."""
    async with scan(world.servers.kafka, [world.catalogue.name(DEAD_LETTERS)]) as records:
        return [record async for record in records]


def altered(sent: Sequence[OutboundRecord], letters: Iterable[RawRecord]) -> list[str]:
    """I12: each record that was sent to die has one dead letter, with its key, value and headers as they were."""
    found = Counter(_bytes_of(one.key, one.value, original_headers(one.headers)) for one in letters)
    return [
        f"case {case_of(one.headers)} has {count} dead letters that are its bytes"
        for one in sent
        if (count := found[_bytes_of(one.key, one.value, one.headers)]) != 1
    ]


def not_exactly_one(sent: Sequence[OutboundRecord], letters: Iterable[RawRecord]) -> list[str]:
    """I13: each record that was sent has exactly one dead letter; records are told apart by their CloudEvents id."""
    found = Counter(header_text(one.headers, EVENT_ID) for one in letters)
    counts = {name: found[name] for one in sent if (name := header_text(one.headers, EVENT_ID))}
    return [f"{name} has {count} dead letters" for name, count in counts.items() if count != 1]


def wrong_reasons(expected: dict[str, str], letters: Iterable[RawRecord]) -> list[str]:
    """Cases whose dead letter gives another reason than it should."""
    told = {case_of(one.headers): header_text(one.headers, REASON) for one in letters}
    return [f"case {case} died of {told[case]}, and not of {why}" for case, why in expected.items() if told.get(case, why) != why]


def case_of(headers: Headers) -> str:
    """Which case a record is, or nothing."""
    return header_text(headers, CASE) or ""


def _bytes_of(key: bytes | None, value: bytes | None, headers: Headers) -> Bytes:
    return key, value, headers
