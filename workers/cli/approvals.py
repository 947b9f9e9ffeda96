"""`sluice approvals`: what waits for a person, and saying yes or no with a key."""

import getpass
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic import TypeAdapter, ValidationError

from infra.identity.signing import add_to_set, new_key, write_private
from infra.redis.approvals import RedisApprovalRegistry
from infra.redis.client import connect
from infra.redis.keys import Keys
from infra.settings import Settings, load_settings
from topics.approval_state import ApprovalQuery, ApprovalState
from topics.errors import ConfigError, RejectedError
from topics.events import ApprovalDecided, Decision
from workers.cli import inbox, output
from workers.cli.approval_stats import stats
from workers.cli.approver import approver_of
from workers.cli.decisions import publish_and_tell
from workers.cli.output import JsonOption
from workers.cli.rebuild import rebuild_
from workers.client import open_client

app = typer.Typer(help="See what waits for a person, and decide.", no_args_is_help=True)
app.command("rebuild")(rebuild_)
app.command("stats")(stats)

ApprovalId = Annotated[str, typer.Argument(help="The approval's id, from `sluice approvals list`.")]
Tenant = Annotated[str, typer.Option(help="Whose approval it is.")]
Key = Annotated[Path | None, typer.Option("--key", help="Your private key; SLUICE_APPROVER_KEY when left out.")]
Token = Annotated[str | None, typer.Option("--token", help="A signature that was made elsewhere, for exactly this decision.")]

_AGE: Final = re.compile(r"(\d+)([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
MIN_PREFIX: Final = 8


@app.command("list")
def list_(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    tool: Annotated[str | None, typer.Option(help="Only calls of this tool.")] = None,
    older_than: Annotated[str | None, typer.Option(help="Only what has waited so long: 90s, 30m, 2h, 1d.")] = None,
    min_amount: Annotated[int | None, typer.Option(help="Only from this amount on, in minor units.")] = None,
    max_amount: Annotated[int | None, typer.Option(help="Only up to this amount, in minor units.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    page: Annotated[str | None, typer.Option(help="Go on where a list ended; it says how.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """List what waits, oldest first."""

    async def show() -> None:
        age_s = None if older_than is None else _seconds(older_than)
        query = ApprovalQuery(tenant, tool, age_s, min_amount, max_amount, limit, _cursor(page))
        async with _registry(load_settings()) as registry:
            found = await registry.search(query)
        if as_json:
            output.print_json([inbox.plain(one) for one in found.approvals])
        elif not found.approvals:
            output.console.print("Nothing waits for a person.")
        else:
            for line in (line for one in found.approvals for line in inbox.lines(one)):
                output.print_plain(line, style="dim" if line.startswith(" ") else None)
        if found.cursor and not as_json:
            output.print_plain(f"There are more: the same command with --page {found.cursor}", style="dim")

    output.run(show, as_json=as_json)


@app.command()
def show(approval_id: ApprovalId, tenant: Tenant, *, as_json: JsonOption = False) -> None:
    """Show one approval, to the byte: what will be done, who must say yes, and how it stands."""

    async def tell() -> None:
        async with _registry(load_settings()) as registry:
            found = await _find(registry, tenant, approval_id)
        if as_json:
            output.print_json(inbox.plain(found))
        else:
            output.print_table(("what", "value"), [fact for fact in inbox.facts(found) if fact[1]])

    output.run(tell, as_json=as_json)


@app.command()
def approve(
    approval_id: ApprovalId,
    tenant: Tenant,
    digest: Annotated[str | None, typer.Option(help="Of an edit that somebody proposed; its beginning is enough.")] = None,
    key: Key = None,
    token: Token = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Say yes to exactly what is shown."""
    _decide(approval_id, tenant, "approve", key, token, digest=digest, as_json=as_json)


@app.command()
def edit(
    approval_id: ApprovalId,
    tenant: Tenant,
    arguments: Annotated[str, typer.Option(help="The whole arguments as they shall be, as JSON.")],
    message: Annotated[str | None, typer.Option(help="Why; the agent reads it.")] = None,
    key: Key = None,
    token: Token = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Say yes to other arguments for the same tool."""
    try:
        edited = TypeAdapter(dict[str, Any]).validate_json(arguments)
    except ValidationError:
        output.fail(ConfigError("--arguments must be a JSON object"), as_json=as_json)
    _decide(approval_id, tenant, "edit", key, token, arguments=edited, message=message, as_json=as_json)


@app.command()
def reject(
    approval_id: ApprovalId,
    tenant: Tenant,
    message: Annotated[str | None, typer.Option(help="Why; the agent reads it.")] = None,
    key: Key = None,
    token: Token = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Say no."""
    _decide(approval_id, tenant, "reject", key, token, message=message, as_json=as_json)


@app.command()
def respond(
    approval_id: ApprovalId,
    tenant: Tenant,
    message: Annotated[str, typer.Option(help="What the agent gets to read instead of a result.")],
    key: Key = None,
    token: Token = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Answer in the tool's place; nothing runs."""
    _decide(approval_id, tenant, "respond", key, token, message=message, as_json=as_json)


@app.command()
def keygen(
    person: Annotated[str, typer.Option(help="Whose key it is: the name that approvals will show.")],
    out: Annotated[Path, typer.Option(help="Where the private key goes; only you can read it, and it is never overwritten.")],
    role: Annotated[list[str] | None, typer.Option(help="A role of theirs; may be given several times.")] = None,
    add_to: Annotated[Path | None, typer.Option(help="A tenant's key set: the public key is added to it.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Make a key to decide with, and print what belongs into the tenant's key set."""

    async def make() -> None:
        key = new_key(person, tuple(role or ()))
        write_private(out, key)
        if add_to is not None:
            add_to_set(add_to, key)
        output.print_json(key.entry)
        if not as_json:
            where = f"is in {add_to} now" if add_to else "belongs into the `keys` of the tenant's key set"
            output.errors.print(f"The private key is in {out}. The public one, above, {where}.", soft_wrap=True)

    output.run(make, as_json=as_json)


def _decide(
    approval_id: str,
    tenant: str,
    decision: Decision,
    key_file: Path | None,
    token: str | None,
    *,
    digest: str | None = None,
    arguments: dict[str, Any] | None = None,
    message: str | None = None,
    as_json: bool,
) -> None:
    async def send() -> None:
        settings = load_settings()
        approver = approver_of(settings, tenant=tenant, key_file=key_file, token=token)
        async with _registry(settings) as registry:
            found = await _find(registry, tenant, approval_id)
        request = found.request
        decided = ApprovalDecided(
            approval_id=approval_id,
            thread_id=request.thread_id,
            decision=decision,
            args_digest=_digest(found, digest),
            approver=approver.name,
            arguments=arguments,
            message=message,
        )
        if approver.is_unsigned and not as_json:
            output.errors.print(f"unsigned, as {approver.name}: it counts only where the tenant's policy says so", soft_wrap=True)
        signed = approver.signed(decided, tenant=tenant, tool=request.tool)
        async with open_client(settings, source=f"sluice-cli/{getpass.getuser()}") as client:
            await publish_and_tell(client, signed, request, tenant=tenant, as_json=as_json)

    output.run(send, as_json=as_json)


def _digest(found: ApprovalState, wanted: str | None) -> str:
    """The digest of what is decided on: the call as it was ordered, or the edit that is named."""
    if wanted is None:
        return found.request.args_digest
    known = [one.digest for one in (found.original, *found.amendments) if one.digest.startswith(wanted)]
    if len(known) != 1 or len(wanted) < MIN_PREFIX:
        raise RejectedError(f"no one thing that waits has a digest that begins with {wanted!r}", code="mismatch")
    return known[0]


def _seconds(age: str) -> float:
    found = _AGE.fullmatch(age)
    if found is None:
        raise ConfigError("--older-than wants a number and s, m, h or d: 90s, 30m, 2h, 1d")
    return float(found.group(1)) * _SECONDS[found.group(2)]


def _cursor(page: str | None) -> str | None:
    if page is not None and not page.isdecimal():
        raise ConfigError("--page wants what the list before said")
    return page


@asynccontextmanager
async def _registry(settings: Settings) -> AsyncGenerator[RedisApprovalRegistry]:
    redis = connect(settings.redis_url, timeout_s=10.0, max_connections=4)
    try:
        yield RedisApprovalRegistry(redis, keys=Keys(settings.redis_prefix))
    finally:
        await redis.aclose()


async def _find(registry: RedisApprovalRegistry, tenant: str, approval_id: str) -> ApprovalState:
    found = await registry.find(tenant, approval_id)
    if found is None:
        raise RejectedError(f"tenant {tenant} has no approval {approval_id}", code="unknown")
    return found
