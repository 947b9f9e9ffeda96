"""`sluice audit`: what became of every decision, proven and exported."""

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from flows.approvals.chain import Fault, Proof, Written
from infra.settings import load_settings
from topics.errors import ConfigError, RejectedError
from workers import audit
from workers.cli import output
from workers.cli.output import JsonOption

app = typer.Typer(help="Prove what became of every decision, and export it.", no_args_is_help=True)

Tenant = Annotated[str | None, typer.Option(help="Only this tenant's.")]
SHOWN = 20


@app.command()
def verify(tenant: Tenant = None, *, as_json: JsonOption = False) -> None:
    """Check the chain of outcomes from the topic alone, and its end against Redis. Exit code 1 when something is wrong."""

    async def check() -> None:
        found = await audit.audit(load_settings(), tenant=tenant)
        error = _error(found)
        if as_json:
            facts = _plain(found)
            if error:
                output.fail_with(facts, error)
            output.print_json(facts)
            return
        broken = {fault.tenant for fault in found.findings.faults}
        for name, proof in found.findings.proofs.items():
            if name not in broken:
                output.print_plain(_proven(name, proof))
        if not found.redis:
            output.errors.print("Redis does not answer: an end that was cut off would not be found", style="yellow")
        for fault in found.findings.faults[:SHOWN]:
            output.print_plain(_sentence(fault), style="red")
        if error:
            raise error
        output.print_plain(f"{found.findings.records} records, nothing is wrong")

    output.run(check, as_json=as_json)


@app.command()
def export(
    tenant: Tenant = None,
    out: Annotated[Path | None, typer.Option(help="A file that is not there yet; standard output when left out.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Write every outcome as a line of JSON: where it stands, whose it is, its payload and its link."""

    async def write() -> None:
        count = 0
        with nullcontext(sys.stdout) if out is None else _new_file(out) as sink:
            async for one in audit.outcomes(load_settings()):
                if tenant in {None, one.tenant}:
                    sink.write(json.dumps(_line(one), ensure_ascii=False) + "\n")
                    count += 1
        if out is not None:
            told = {"exported": count, "file": str(out)}
            output.print_json(told) if as_json else output.print_plain(f"{count} outcomes in {out}")

    output.run(write, as_json=as_json)


def _error(found: audit.Audited) -> RejectedError | None:
    faults = found.findings.faults
    return (
        RejectedError(f"the chain is broken: {len(faults)} faults, first: {_sentence(faults[0])}", code="broken")
        if faults
        else None
    )


def _sentence(fault: Fault) -> str:
    about = f"{fault.where}, event {fault.event_id}" if fault.where else "nothing on the topic"
    return f"{fault.tenant or 'no tenant'}, number {fault.number} ({about}): {fault.what}"


def _plain(found: audit.Audited) -> dict[str, Any]:
    findings = found.findings
    return {
        "ok": not findings.faults,
        "records": findings.records,
        "compared_with_redis": found.redis,
        "proven": {
            name: {"first": one.first, "last": one.last, "digest": one.digest, "untold": list(one.untold)}
            for name, one in findings.proofs.items()
        },
        "faults": [
            {"tenant": one.tenant, "number": one.number, "where": one.where, "event_id": one.event_id, "what": one.what}
            for one in findings.faults
        ],
    }


def _proven(tenant: str, proof: Proof) -> str:
    since = "" if proof.first == 1 else f"; what was before number {proof.first} is no longer kept"
    coming = f"; on the way to the topic: {', '.join(map(str, proof.untold))}" if proof.untold else ""
    return f"{tenant}: outcomes {proof.first} to {proof.last} are proven{since}{coming}"


def _line(one: Written) -> dict[str, Any]:
    facts = {"where": one.where, "tenant": one.tenant, "id": one.event_id, "type": one.event_type, "payload": one.wire}
    return facts | ({"problem": one.problem} if one.problem else {})


def _new_file(out: Path) -> TextIO:
    try:
        return out.open("x", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror}") from error
