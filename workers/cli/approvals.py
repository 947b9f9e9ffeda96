"""`sluice approvals`: what waits for a person, and saying yes or no."""

import getpass
import json
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
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
EXECUTED_WITHIN_S = 20.0


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


@dataclass(slots=True)
class _Outcome:
    """What came of a decision so far."""

    accepted: ApprovalAccepted | None = None
    refused: ApprovalRefused | None = None
    executed: ApprovalExecuted | None = None

    def take(self, payload: Any, *, approval_id: str, decision_id: str) -> bool:
        """Take note of an event. False when it is about something else."""
        match payload:
            case ApprovalExecuted() if payload.approval_id == approval_id:
                self.executed = payload
            case ApprovalAccepted() if payload.decision_id == decision_id:
                self.accepted = payload
            case ApprovalRefused() if payload.decision_id == decision_id:
                self.refused = payload
            case _:
                return False
        return True

    def as_dict(self) -> dict[str, Any]:
        """What is known, plain."""
        told = {"accepted": self.accepted, "refused": self.refused, "executed": self.executed}
        return {name: payload.model_dump(mode="json") for name, payload in told.items() if payload is not None}


async def _publish_and_tell(
    client: Client, decided: ApprovalDecided, request: ApprovalRequested, *, tenant: str, as_json: bool
) -> None:
    """Publish a decision, and show what comes of it.

    Raises:
        RejectedError: It did not count.
        TimedOutError: It was published, and nothing came of it in time.
    """
    outcome, decision_id = _Outcome(), secrets.token_hex(12)
    with anyio.move_on_after(OUTCOME_WITHIN_S) as waiting:
        async with client.watch([OUTCOMES]) as events:
            await client.publish(decided, tenant=tenant, event_id=decision_id)
            async for event in events:
                is_ours = outcome.take(event.payload, approval_id=decided.approval_id, decision_id=decision_id)
                if outcome.refused or outcome.executed:
                    break
                if is_ours:
                    if not as_json:
                        output.print_plain(f"{decided.decision} accepted for {request.tool}")
                    if decided.decision in {"reject", "respond"}:
                        break
                    # What runs may first wait for the other calls of its turn to be decided.
                    waiting.deadline = anyio.current_time() + EXECUTED_WITHIN_S
    _tell(outcome, request, as_json=as_json)


def _tell(outcome: _Outcome, request: ApprovalRequested, *, as_json: bool) -> None:
    error: RejectedError | TimedOutError | None = None
    if outcome.refused is not None:
        error = RejectedError(
            f"the decision did not count: {outcome.refused.code}. {outcome.refused.detail}", code=outcome.refused.code
        )
    elif outcome.accepted is None and outcome.executed is None:
        error = TimedOutError(
            f"published, but no outcome within {OUTCOME_WITHIN_S:g} s: is an approvals worker running? It will be answered on "
            "approvals.outcomes"
        )
    if error is not None:
        if as_json and outcome.refused is not None:
            output.fail_with(outcome.as_dict(), error)
        raise error
    if as_json:
        output.print_json(outcome.as_dict())
    elif outcome.executed is not None:
        output.print_plain(f"{request.tool}: {outcome.executed.status}")


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
