"""`sluice approvals`: what waits for a person, and saying yes or no."""

import getpass
import json
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

import anyio
import typer
from pydantic import TypeAdapter, ValidationError

from infra.redis.approvals import RedisApprovalRegistry, Registered
from infra.redis.client import connect
from infra.redis.keys import Keys
from infra.settings import Settings, load_settings
from topics.catalogue import OUTCOMES
from topics.errors import ConfigError, RejectedError, TimedOutError
from topics.events import ApprovalAccepted, ApprovalDecided, ApprovalExecuted, ApprovalRefused, ApprovalRequested, Decision
from workers.cli import output
from workers.cli.output import JsonOption
from workers.client import Client, open_client

app = typer.Typer(help="See what waits for a person, and decide.", no_args_is_help=True)

ApprovalId = Annotated[str, typer.Argument(help="The approval's id, from `sluice approvals list`.")]
Tenant = Annotated[str, typer.Option(help="Whose approval it is.")]
Approver = Annotated[str | None, typer.Option("--as", help="Who decides; your user name when left out.")]

OUTCOME_WITHIN_S = 60.0


@app.command("list")
def list_(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    *,
    as_json: JsonOption = False,
) -> None:
    """List what waits, oldest first."""

    async def show() -> None:
        async with _registry(load_settings()) as registry:
            waiting = await registry.pending(tenant, limit=limit)
        if as_json:
            output.print_json([_plain(one) for one in waiting])
        elif not waiting:
            output.console.print("Nothing waits for a person.")
        else:
            output.print_table(("approval", "tenant", "thread", "tool", "arguments"), [_row(one) for one in waiting])

    output.run(show, as_json=as_json)


@app.command()
def show(approval_id: ApprovalId, tenant: Tenant, *, as_json: JsonOption = False) -> None:
    """Show one approval, to the byte."""

    async def tell() -> None:
        async with _registry(load_settings()) as registry:
            found = await _find(registry, tenant, approval_id)
        if as_json:
            output.print_json(_plain(found))
        else:
            output.console.print_json(json.dumps(_plain(found)))

    output.run(tell, as_json=as_json)


@app.command()
def approve(approval_id: ApprovalId, tenant: Tenant, approver: Approver = None, *, as_json: JsonOption = False) -> None:
    """Say yes to exactly what is shown."""
    _decide(approval_id, tenant, "approve", approver, as_json=as_json)


@app.command()
def edit(
    approval_id: ApprovalId,
    tenant: Tenant,
    arguments: Annotated[str, typer.Option(help="The whole arguments as they shall be, as JSON.")],
    approver: Approver = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Say yes to other arguments for the same tool."""
    try:
        edited = TypeAdapter(dict[str, Any]).validate_json(arguments)
    except ValidationError:
        output.fail(ConfigError("--arguments must be a JSON object"), as_json=as_json)
    _decide(approval_id, tenant, "edit", approver, arguments=edited, as_json=as_json)


@app.command()
def reject(
    approval_id: ApprovalId,
    tenant: Tenant,
    message: Annotated[str | None, typer.Option(help="Why; the agent reads it.")] = None,
    approver: Approver = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Say no."""
    _decide(approval_id, tenant, "reject", approver, message=message, as_json=as_json)


@app.command()
def respond(
    approval_id: ApprovalId,
    tenant: Tenant,
    message: Annotated[str, typer.Option(help="What the agent gets to read instead of a result.")],
    approver: Approver = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Answer in the tool's place; nothing runs."""
    _decide(approval_id, tenant, "respond", approver, message=message, as_json=as_json)


def _decide(
    approval_id: str,
    tenant: str,
    decision: Decision,
    approver: str | None,
    *,
    arguments: dict[str, Any] | None = None,
    message: str | None = None,
    as_json: bool,
) -> None:
    async def send() -> None:
        settings = load_settings()
        async with _registry(settings) as registry:
            request = (await _find(registry, tenant, approval_id)).request
        decided = ApprovalDecided(
            approval_id=approval_id,
            thread_id=request.thread_id,
            decision=decision,
            args_digest=request.args_digest,
            approver=approver or getpass.getuser(),
            arguments=arguments,
            message=message,
        )
        async with open_client(settings, source=f"sluice-cli/{getpass.getuser()}") as client:
            await _publish_and_tell(client, decided, request, tenant=tenant, as_json=as_json)

    output.run(send, as_json=as_json)


async def _publish_and_tell(
    client: Client, decided: ApprovalDecided, request: ApprovalRequested, *, tenant: str, as_json: bool
) -> None:
    decision_id = secrets.token_hex(12)
    try:
        with anyio.fail_after(OUTCOME_WITHIN_S):
            async with client.watch([OUTCOMES]) as events:
                await client.publish(decided, tenant=tenant, event_id=decision_id)
                async for event in events:
                    outcome = event.payload
                    if isinstance(outcome, ApprovalExecuted) and outcome.approval_id == decided.approval_id:
                        return _tell(outcome, f"{outcome.tool} ran: {outcome.status}", as_json=as_json)
                    if getattr(outcome, "decision_id", None) != decision_id:
                        continue
                    if isinstance(outcome, ApprovalRefused):
                        if as_json:
                            output.print_json({"type": outcome.TYPE, **outcome.model_dump(mode="json")})
                        raise RejectedError(f"the decision did not count: {outcome.code}. {outcome.detail}", code=outcome.code)
                    if isinstance(outcome, ApprovalAccepted):
                        _tell(outcome, f"{decided.decision} accepted for {request.tool}", as_json=as_json)
                        if decided.decision in {"reject", "respond"}:
                            return None
    except TimeoutError as error:
        raise TimedOutError(
            f"published, but no outcome within {OUTCOME_WITHIN_S:g} s: is an approvals worker running? It will be answered on "
            "approvals.outcomes"
        ) from error
    return None


def _tell(outcome: ApprovalAccepted | ApprovalExecuted, sentence: str, *, as_json: bool) -> None:
    if as_json:
        output.print_json({"type": outcome.TYPE, **outcome.model_dump(mode="json")})
    else:
        output.console.print(sentence)


@asynccontextmanager
async def _registry(settings: Settings) -> AsyncGenerator[RedisApprovalRegistry]:
    redis = connect(settings.redis_url, timeout_s=10.0, max_connections=4)
    try:
        yield RedisApprovalRegistry(redis, keys=Keys(settings.redis_prefix))
    finally:
        await redis.aclose()


async def _find(registry: RedisApprovalRegistry, tenant: str, approval_id: str) -> Registered:
    found = await registry.find(tenant, approval_id)
    if found is None:
        raise RejectedError(f"tenant {tenant} has no approval {approval_id}", code="unknown")
    return found


def _plain(one: Registered) -> dict[str, Any]:
    verdict = one.verdict.model_dump(mode="json") if one.verdict else None
    return {"tenant": one.tenant, "status": one.status, "verdict": verdict, **one.request.model_dump(mode="json")}


def _row(one: Registered) -> Sequence[object]:
    request = one.request
    return request.approval_id, one.tenant, request.thread_id, request.tool, json.dumps(request.arguments, ensure_ascii=False)
