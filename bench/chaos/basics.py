"""What every procedure begins and ends with: the shape of its load, and its judgement."""

from dataclasses import replace
from typing import Any, Final

from bench.chaos.account import Account
from bench.chaos.facts import Assigned, Disturbed
from bench.chaos.invariants import Bounds
from bench.chaos.judge import judge
from bench.chaos.spec import OURS
from bench.chaos.verdict import Verdict
from bench.chaos.world import World

KEYS: Final = 60
WORK_MS: Final = (50, 900)


def bounds_of(world: World, **changed: Any) -> Bounds:
    """What a run of this engine allows. Rivals publish no answers of ours."""
    return replace(Bounds(answers=world.engine == OURS), **changed)


async def conclude(world: World, verdict: Verdict, *invariants: str, within_s: float = 120.0, **bounds: Any) -> Account:
    """Wait until a run is quiet, and judge it: everything of ours must also have stayed alive and come to its end."""
    finished = await world.quiesce(within_s=within_s)
    account = await world.account()
    judge(account, verdict, bounds_of(world, **bounds), *invariants)
    if world.engine == OURS:
        verdict.add("alive", _died_at_work(account))
        verdict.add("I10", [] if finished else [f"{world.look().unfinished} inputs were unfinished or uncommitted at the end"])
    verdict.figures["commits_sampled"] = world.sampler.samples
    return account


def _died_at_work(account: Account) -> list[str]:
    """Workers that ended by themselves once they had partitions; one that finds no server when it starts says so and ends."""
    worked = {one.who for one in account.of(Assigned)}
    died = [one.target for one in account.of(Disturbed) if one.kind == "died"]
    return [f"{who} ended by itself" for who in died if who in worked]
