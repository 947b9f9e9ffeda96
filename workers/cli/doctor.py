"""`sluice doctor`: is everything there that workers need, and set as it must be?"""

from collections.abc import Awaitable, Callable, Generator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Final

import anyio
from rich.text import Text

from infra.foreign_tracing import VARIABLES, refuse_foreign_tracing
from infra.kafka import provision
from infra.models.metering import OURS
from infra.redaction import load_redactor
from infra.redis.client import check_server, connect
from infra.redis.keys import Keys
from infra.settings import Settings, load_settings, read_inherited
from topics.catalogue import Catalogue
from topics.errors import ConfigError, SluiceError
from workers.cli import output
from workers.cli.output import JsonOption
from workers.models import build_models
from workers.policy import load_policy
from workers.toolsets import load_toolset

_WORDS: Final = {True: Text("ok", style="green"), False: Text("wrong", style="red")}
CHECK_WITHIN_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    check: str
    ok: bool
    detail: str


def doctor(*, as_json: JsonOption = False) -> None:
    """Check settings, Kafka, topics, Redis, the model and the toolsets. Changes nothing but a probe key."""

    async def examine() -> None:
        settings = load_settings()
        findings = [await _run(name, check, settings) for name, check in CHECKS.items()]
        wrong = [finding.check for finding in findings if not finding.ok]
        error = ConfigError(f"not ready: {', '.join(wrong)}")
        if as_json and wrong:
            output.fail_with([asdict(finding) for finding in findings], error)
        elif as_json:
            output.print_json([asdict(finding) for finding in findings])
        else:
            rows = [(_WORDS[one.ok], one.check, one.detail) for one in findings]
            output.print_table(("", "check", "detail"), rows)
        if wrong:
            raise error

    output.run(examine, as_json=as_json)


async def _run(name: str, check: Callable[[Settings], Awaitable[str]], settings: Settings) -> Finding:
    try:
        with anyio.fail_after(CHECK_WITHIN_S):
            return Finding(name, ok=True, detail=await check(settings))
    except SluiceError as error:
        return Finding(name, ok=False, detail=str(error))
    except TimeoutError:
        return Finding(name, ok=False, detail=f"no answer within {CHECK_WITHIN_S:g} s")


async def _topics(settings: Settings) -> str:
    steps = await provision.plan(settings.kafka(), Catalogue(settings.topic_prefix))
    missing = [step.topic for step in steps if step.action == "create"]
    if missing:
        raise ConfigError(f"{len(missing)} topics are missing ({missing[0]}, ...): run `sluice topics apply`")
    return f"every topic is there at {settings.kafka_bootstrap}"


async def _redis(settings: Settings) -> str:
    redis = connect(settings.redis_url, timeout_s=5.0, max_connections=4)
    try:
        warnings = await check_server(redis, keys=Keys(settings.redis_prefix))
    finally:
        await redis.aclose()
    return "; ".join(warnings) or "modules, append-only file and eviction policy are right"


async def _model(settings: Settings) -> str:
    """Ask every provider, because nobody notices that a spare one is wrong until it is needed."""
    async with AsyncExitStack() as stack:
        doors = build_models(settings, stack=stack).chat.doors
        for door in doors:
            with _named(str(door.client.openai_api_base)):
                await door.client.ainvoke("Say ok.")
    return "; ".join(f"{door.client.model_name} answers at {door.client.openai_api_base}" for door in doors)


async def _embeddings(settings: Settings) -> str:
    async with AsyncExitStack() as stack:
        with _named(settings.embedding_base_url or settings.model_base_url):
            await build_models(settings, stack=stack).embedder.embed(["ok"], tenant=OURS)
    return f"{settings.embedding_model} gives {settings.embedding_dimensions} floats"


@contextmanager
def _named(address: str) -> Generator[None]:
    try:
        yield
    except SluiceError as error:
        raise ConfigError(f"{address}: {error}") from error


async def _toolsets(settings: Settings) -> str:
    names = sorted({settings.toolset, *settings.toolsets.values()})
    return "; ".join(f"{name}: {len(load_toolset(name).tools)} tools" for name in names)


async def _policy(settings: Settings) -> str:
    loaded = load_policy(settings)
    return "; ".join(loaded.warnings) or f"{settings.policy_file} fits the tools and the keys"


async def _tracing(settings: Settings) -> str:
    load_redactor(settings.redactor)
    foreign = refuse_foreign_tracing(read_inherited(VARIABLES))
    own = f"spans go to {settings.otlp_endpoint}" if settings.otlp_endpoint else "no spans are sent (SLUICE_OTLP_ENDPOINT)"
    return f"{own}; {foreign}" if foreign else own


CHECKS: Final = {
    "topics": _topics,
    "redis": _redis,
    "model": _model,
    "embeddings": _embeddings,
    "toolsets": _toolsets,
    "policy": _policy,
    "tracing": _tracing,
}
