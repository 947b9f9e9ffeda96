"""Who says what about which thread, by a seed. Pure."""

import random
from dataclasses import dataclass
from typing import Final, Literal

PRODUCERS: Final = 5
OWN_KEYS: Final = 2  # of the producers, who key by a word of their own: their decisions land on any partition

Choice = Literal["approve", "reject"]


@dataclass(frozen=True, slots=True)
class Shot:
    """One decision on one thread, by one producer. `key` is None where the contract's own key is used."""

    thread: int
    producer: int
    choice: Choice
    decision_id: str
    key: str | None = None


def shots(threads: int, seed: int) -> list[list[Shot]]:
    """One list for each producer: for each thread an approve, a reject and three copies of them.

    All producers come to a thread at about the same time: what arrives one after another is no race.
    """
    rng = random.Random(seed)
    by_producer: list[list[Shot]] = [[] for _ in range(PRODUCERS)]
    for thread in rng.sample(range(threads), threads):
        choices: list[Choice] = ["approve", "reject", *rng.choices(("approve", "reject"), k=PRODUCERS - 2)]
        rng.shuffle(choices)
        for producer, choice in enumerate(choices):
            decision_id = f"race-{seed}-{thread}-{producer}"
            key = f"producer-{producer}-{rng.randrange(1000)}" if producer >= PRODUCERS - OWN_KEYS else None
            by_producer[producer].append(Shot(thread, producer, choice, decision_id, key))
    return by_producer


def person_of(producer: int) -> str:
    """Who decides by way of a producer."""
    return f"person-{producer}"
