"""P10: any bytes end as a dead letter with the same bytes, good records beside them are done, and positions reach the ends."""

import random
from dataclasses import dataclass

from bench.chaos.basics import KEYS, bounds_of
from bench.chaos.inputs import make_tasks
from bench.chaos.judge import judge
from bench.chaos.scenarios.letters import CASE, altered, case_of, dead_letters_of, wrong_reasons
from bench.chaos.verdict import Verdict
from bench.chaos.world import World
from infra.kafka.publisher import raw_producer
from topics.catalogue import QUERIES
from topics.records import Headers, OutboundRecord

LARGE_BYTES = 900_000
ASKED: Headers = (("ce_type", b"query.asked"), ("ce_tenant", b"chaos"))


@dataclass(frozen=True, slots=True)
class Poison:
    """A record that nobody can do, and the reason that its dead letter must give."""

    reason: str
    record: OutboundRecord


async def poison(world: World, seed: int, *, inputs: int = 240, rounds: int = 4) -> Verdict:
    """P10: poison of every kind among good records."""
    bad = [one for number in range(rounds) for one in poisons(seed * 100 + number, topic=world.catalogue.name(QUERIES))]
    await world.start_workers(3)
    world.feed(make_tasks(seed, inputs, keys=KEYS, work_ms=(10, 200)), rate_per_s=40.0)
    async with raw_producer(world.servers.kafka) as producer:
        for one in bad:
            await producer.write(one.record)
    is_quiet = await world.quiesce(within_s=90.0)
    verdict = Verdict("P10", world.engine, seed)
    judge(await world.account(), verdict, bounds_of(world), "I1", "I2", "I4", "I5", "I6", "I8", "I9", "I10")
    letters = await dead_letters_of(world)
    verdict.add("I12", altered([one.record for one in bad], letters))
    verdict.add("I12", wrong_reasons({case_of(one.record.headers): one.reason for one in bad}, letters))
    verdict.add("I10", [] if is_quiet else ["positions did not reach the ends of their partitions"])
    verdict.add("crash", [f"{name} ended by itself" for name, member in world.members.items() if not member.server.is_running])
    verdict.figures["poison"] = len(bad)
    return verdict


def poisons(seed: int, *, topic: str) -> list[Poison]:
    """One record of each kind. The same seed gives the same bytes."""
    draw = random.Random(seed)
    noise, key = draw.randbytes(200), f"chaos/k{draw.randrange(KEYS)}".encode()
    kinds: list[tuple[str, bytes | None, bytes | None, Headers]] = [
        ("bad_json", key, b"\xff" + noise, ASKED),
        ("missing_type", draw.randbytes(30), noise, ()),
        ("bad_json", None, b"{" + noise, ASKED),
        ("unexpected_tombstone", key, None, ASKED),
        ("unexpected_tombstone", None, None, ()),
        ("bad_json", key, b"\xfe" + draw.randbytes(LARGE_BYTES), ASKED),
        ("not_utf8", key, b"{}", (("ce_type", b"\xff\xfe"), ("ce_tenant", b"chaos"))),
        ("bad_payload", key, b"{}", (*ASKED, ("x-null", None), ("x-twice", b"1"), ("x-twice", b"\x00\xff"), ("", b""))),
        ("empty_body", key, b"", ASKED),
        ("unknown_type", key, b"{}", (("ce_type", b"nobody.said"), ("ce_tenant", b"chaos"))),
    ]
    return [
        Poison(reason, OutboundRecord(topic, found, value, ((CASE, f"{seed}-{number}".encode()), *headers)))
        for number, (reason, found, value, headers) in enumerate(kinds)
    ]
