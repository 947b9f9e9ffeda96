"""`sluice triage`: examples that show a model how a tenant wants its tickets sorted."""

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from redis.asyncio import Redis

from flows.example_lines import read_examples
from flows.examples import searched
from infra.redis.client import connect
from infra.redis.examples import RedisExamples
from infra.redis.keys import Keys
from infra.settings import Settings, load_settings
from topics.envelope import is_tenant
from topics.errors import ConfigError, MalformedError, RejectedError
from topics.example import Example
from workers.cli import output
from workers.cli.output import JsonOption
from workers.metering import build_budgets, build_meter
from workers.models import build_models

app = typer.Typer(help="Show the model how a tenant wants its tickets sorted.", no_args_is_help=True)
examples = typer.Typer(help="Add, list and remove a tenant's examples.", no_args_is_help=True)
app.add_typer(examples, name="examples")

Tenant = Annotated[str, typer.Option(help="Whose examples they are.")]


@examples.command()
def add(
    tenant: Tenant,
    file: Annotated[Path | None, typer.Option(help="A file of JSON lines; standard input when left out.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Add examples, one JSON object a line: body, intent, priority, needs_person, summary, and if you like title and ticket_id.

    Every line is checked before any is kept. A line of a ticket that is known takes the place of the earlier one.
    """

    async def keep() -> None:
        _check(tenant)
        read = _read(file, tenant)
        settings = load_settings()
        async with _redis(settings) as redis:
            store = _store(redis, settings)
            await store.prepare()
            await store.check_room(tenant, read)
            new = await store.add(tenant, read, await _vectors(redis, settings, tenant, read))
            await _report(store, tenant, {"added": new, "replaced": len(read) - new}, as_json=as_json)

    output.run(keep, as_json=as_json)


@examples.command("list")
def list_(
    tenant: Tenant,
    *,
    reveal: Annotated[bool, typer.Option("--reveal", help="Also show the texts, which are people's words.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List a tenant's examples, and the version that stands in `ticket.triaged` after a plus sign."""

    async def tell() -> None:
        _check(tenant)
        settings = load_settings()
        async with _redis(settings) as redis:
            store = _store(redis, settings)
            found, version = await store.of(tenant), await store.version(tenant)
        if as_json:
            output.print_json({"tenant": tenant, "version": version, "examples": [_plain(one, reveal=reveal) for one in found]})
        elif not found:
            output.print_plain(f"{tenant} has no examples.")
        else:
            columns = ("id", "intent", "priority", "needs a person", "ticket", "summary")
            output.print_table(columns, [_row(one, reveal=reveal) for one in found], title=f"version {version}")

    output.run(tell, as_json=as_json)


@examples.command()
def remove(
    tenant: Tenant,
    example_id: Annotated[str | None, typer.Argument(metavar="ID", help="An example's id, from `list`.")] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All of the tenant's.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove one example of a tenant, or all of them."""

    async def forget() -> None:
        _check(tenant)
        if (example_id is None) != everything:
            raise ConfigError("name one example, or --all")
        settings = load_settings()
        async with _redis(settings) as redis:
            store = _store(redis, settings)
            gone = await store.remove(tenant, await store.ids(tenant) if example_id is None else [example_id])
            if example_id is not None and not gone:
                raise RejectedError(f"tenant {tenant} has no example {example_id}", code="unknown")
            await _report(store, tenant, {"removed": gone}, as_json=as_json)

    output.run(forget, as_json=as_json)


@asynccontextmanager
async def _redis(settings: Settings) -> AsyncGenerator[Redis]:
    client = connect(settings.redis_url, timeout_s=10.0)
    try:
        yield client
    finally:
        await client.aclose()


def _store(redis: Redis, settings: Settings) -> RedisExamples:
    return RedisExamples(redis, Keys(settings.redis_prefix), dimensions=settings.embedding_dimensions)


def _check(tenant: str) -> None:
    if not is_tenant(tenant):
        raise ConfigError("--tenant is no tenant's name: letters, digits, `_ . -`, at most 100")


def _read(file: Path | None, tenant: str) -> list[Example]:
    """Read and check all lines.

    Raises:
        ConfigError, MalformedError: There is nothing, or something is wrong. Nothing was kept.
    """
    try:
        lines = (file.read_bytes() if file else sys.stdin.buffer.read()).decode().split("\n")
        found = read_examples(lines, tenant=tenant)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise MalformedError(f"{file or 'standard input'} is not UTF-8; nothing was kept", code="not_utf8") from error
    except MalformedError as error:
        raise MalformedError(f"{error}; nothing was kept") from error
    if not found:
        raise ConfigError(
            f"there is no example in {file or 'standard input'}: give a JSON object a line, in --file or on standard input"
        )
    return found


async def _vectors(redis: Redis, settings: Settings, tenant: str, read: Sequence[Example]) -> Sequence[Sequence[float]]:
    keys = Keys(settings.redis_prefix)
    meter = build_meter(settings, redis=redis, keys=keys, budgets=build_budgets(settings, redis=redis, keys=keys))
    async with AsyncExitStack() as stack:
        embedder = build_models(settings, stack=stack, meter=meter).embedder
        return await embedder.embed([searched(one.title, one.body) for one in read], tenant=tenant)


async def _report(store: RedisExamples, tenant: str, done: dict[str, int], *, as_json: bool) -> None:
    """Say what was done, and what the tenant has now."""
    count, version = len(await store.ids(tenant)), await store.version(tenant)
    if as_json:
        output.print_json({"tenant": tenant, **done, "examples": count, "version": version})
    else:
        told = ", ".join(f"{number} {what}" for what, number in done.items())
        output.print_plain(f"{told}; {tenant} has {count} now" + (f", version {version}" if version else ""))


def _plain(one: Example, *, reveal: bool) -> dict[str, Any]:
    return {
        "example_id": one.example_id,
        "intent": one.intent,
        "priority": one.priority,
        "needs_person": one.needs_person,
        "title": one.title if reveal else None,
        "body": one.body if reveal else None,
        "summary": one.summary if reveal else None,
    }


def _row(one: Example, *, reveal: bool) -> tuple[object, ...]:
    ticket, summary = f"{one.title}\n{one.body}".strip(), one.summary
    texts = (ticket, summary) if reveal else (f"({len(ticket)} characters)", f"({len(summary)} characters)")
    return one.example_id, one.intent, one.priority, "yes" if one.needs_person else "no", *texts
