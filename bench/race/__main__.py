"""`make race`: contradictory decisions at once on many paused threads, on Apache Kafka, beside plain LangGraph.

    make race                  200 threads, three seeds
    make race SHORT=1          40 threads, one seed

The last line is one JSON object. Exit code 1 when a decision was not answered, an effect was missing, one too many, or the
control showed no double: then the race proves nothing.
"""

import argparse
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio
import httpx

from bench.race import ours, plain
from bench.race.account import Account
from bench.race.ground import Ground
from bench.race.plan import PRODUCERS, person_of
from infra.local.apache_kafka import apache_kafka_missing
from workers.demo.host import hosted
from workers.demo.people import KEY_SET, hire

SEEDS: Final = (11, 12, 13)
THREADS: Final = 200
SHORT_THREADS: Final = 40
CONTROL_RACES: Final = 4
POLICY: Final = f'[tenants."*"]\nkeys = "{KEY_SET}"\n'  # what a tool declares; every decision signed


def main() -> int:
    """Race, tell, and judge."""
    parser = argparse.ArgumentParser(prog="python -m bench.race", description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help=f"{SHORT_THREADS} threads and one seed")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--seed", type=int, action="append", help="one or more; each is a whole race")
    asked = parser.parse_args()
    if missing := apache_kafka_missing():
        print(f"The race is run on Apache Kafka. {missing}.", file=sys.stderr)
        return 2
    threads = asked.threads or (SHORT_THREADS if asked.short else THREADS)
    seeds = tuple(asked.seed or (SEEDS[:1] if asked.short else SEEDS))
    found = anyio.run(_races, threads, seeds)
    holds = all(account.holds for account, _ in found) and all(control > 0 for _, control in found)
    print(json.dumps(_told(found, seeds=seeds, holds=holds)))
    return 0 if holds else 1


async def _races(threads: int, seeds: tuple[int, ...]) -> list[tuple[Account, int]]:
    found: list[tuple[Account, int]] = []
    for seed in seeds:
        async with _ground(f"race{seed}", threads) as ground:
            _say(f"seed {seed}: {threads} threads, {threads * 5} decisions by five producers, three workers")
            account = await ours.race(ground, seed=seed, say=_say)
            _say(f"    {account.answered} of {account.decisions} answered: {account.answers}")
            _say(f"    {account.effects} effects, {account.effects_expected} expected, {account.double_effects} double")
            for sentence in (*account.wrong, *(f"silent: {one}" for one in account.silent)):
                _say(f"    WRONG {sentence}")
        found.append((account, await _control(seed, threads)))
    return found


async def _control(seed: int, threads: int) -> int:
    """Double effects by plain LangGraph. Whether two of its workers meet is chance: a race without any is run again."""
    for number in range(CONTROL_RACES):
        async with _ground(f"plain{seed}-{number}", threads) as ground:
            doubles = await plain.race(ground, seed=seed + 1_000 * number, say=_say)
            _say(f"    {doubles} double effects by plain LangGraph on the same saver")
        if doubles:
            return doubles
    return 0


@asynccontextmanager
async def _ground(name: str, threads: int) -> AsyncGenerator[Ground]:
    with TemporaryDirectory(prefix="sluice-race-", ignore_cleanup_errors=True) as folder:
        people = hire(Path(folder) / "people", roles={person_of(number): () for number in range(PRODUCERS)}, policy=POLICY)
        async with (
            hosted(Path(folder), broker="apache-kafka", policy_file=str(people.policy_file)) as host,
            httpx.AsyncClient(timeout=30.0, trust_env=False) as http,
        ):
            yield Ground(host, people, http, name, threads)


def _told(found: list[tuple[Account, int]], *, seeds: tuple[int, ...], holds: bool) -> dict[str, Any]:
    accounts = [account for account, _ in found]
    codes = sorted({code for account in accounts for code in account.answers})
    return {
        "threads": sum(account.threads for account in accounts),
        "decisions": sum(account.decisions for account in accounts),
        "answered": sum(account.answered for account in accounts),
        "answers": {code: sum(account.answers.get(code, 0) for account in accounts) for code in codes},
        "effects": sum(account.effects for account in accounts),
        "effects_expected": sum(account.effects_expected for account in accounts),
        "double_effects": sum(account.double_effects for account in accounts),
        "control_double_effects": sum(control for _, control in found),
        "kills": len(found),
        "seeds": list(seeds),
        "holds": holds,
    }


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
