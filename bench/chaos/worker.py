"""python -m bench.chaos.worker SPEC.json: one worker process, with the engine that its spec names.

Exit code 0 after a drain, 3 when its engine halted.
"""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import anyio
import structlog

from bench.chaos import ours
from bench.chaos.effects import OutsideClient
from bench.chaos.facts import Joined
from bench.chaos.ledger import Ledger, now_ns
from bench.chaos.perform import PROVIDER, Perform
from bench.chaos.spec import OURS, Spec
from infra.clock import SystemClock
from infra.redis.client import connect
from infra.redis.effects import RedisEffectLedger
from infra.redis.leases import RedisLeases
from infra.redis.rate_limit import RedisRateLimit
from infra.telemetry import configure_logging
from topics.errors import HaltError

HALTED: Final = 3
MARGIN_S: Final = 10.0
WORKERS: Final = 3  # at most, where the model is limited

Engine = Callable[[Spec, Perform], Awaitable[None]]

_log: Any = structlog.get_logger("sluice.chaos")


async def work(spec: Spec) -> None:
    """Run the engine until SIGTERM, then give it its time to drain."""
    with Ledger(spec.ledger_dir, spec.incarnation) as ledger:
        redis = connect(spec.redis_url, timeout_s=5.0)
        perform = Perform(
            who=spec.incarnation,
            ledger=ledger,
            leases=RedisLeases(redis, lease_ms=int(spec.lease_s * 1000), keys=spec.keys),
            effects=RedisEffectLedger(redis, keys=spec.keys),
            outside=OutsideClient(spec.effects_port),
            redis=redis,
            meter=RedisRateLimit(redis, {PROVIDER: spec.pace}, processes=WORKERS, clock=SystemClock(), keys=spec.keys),
        )
        ledger.write(Joined(at_ns=now_ns(), who=spec.incarnation, pid=os.getpid()))
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_stop_on_signal, spec, perform, tasks.cancel_scope)
                await engine_named(spec.engine)(spec, perform)
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await redis.aclose()


def engine_named(name: str) -> Engine:
    """The `run` of an engine."""
    return ours.run if name == OURS else import_module(f"bench.chaos.engines.{name}").run


async def _stop_on_signal(spec: Spec, perform: Perform, scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            perform.stopping.set()
            await anyio.sleep(spec.drain_s + MARGIN_S)
            scope.cancel()  # an engine that does not listen ends here


def main() -> int:
    """Read the spec and work."""
    spec = Spec.model_validate_json(Path(sys.argv[1]).read_bytes())
    configure_logging("info")
    code = 0
    try:
        anyio.run(work, spec)
    except* HaltError as group:
        code = HALTED
        _log.error("halted", why=repr(group.exceptions))
    return code


if __name__ == "__main__":
    sys.exit(main())
