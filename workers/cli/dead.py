"""`sluice dead`: look into dead letters, send them back as they are or edited, or discard them."""

import getpass
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from infra.kafka.header_names import shown
from infra.settings import load_settings
from topics.errors import RejectedError
from workers import dead_letters
from workers.cli import output
from workers.cli.editing import edited_value, tell_edit
from workers.cli.output import JsonOption
from workers.dead_letters import DeadLetter, Filter, ReplayRefusedError, State
from workers.masking import masked_facts, masked_text, masked_value
from workers.operations import Operations

app = typer.Typer(help="Look into dead letters, send them back, as they are or edited, or discard them.", no_args_is_help=True)

Ids = Annotated[list[str] | None, typer.Argument(help="Dead-letter ids; all that match the filters when left out.")]
Reason = Annotated[str | None, typer.Option(help="Only this reason code.")]
Tenant = Annotated[str | None, typer.Option(help="Only this tenant's.")]
Topic = Annotated[str | None, typer.Option(help="Only from this topic.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen; write nothing.")]


@app.command("list")
def list_(
    reason: Reason = None,
    tenant: Tenant = None,
    topic: Topic = None,
    every: Annotated[bool, typer.Option("--all", help="Also those that were replayed or discarded.")] = False,  # noqa: FBT002 -- a flag of the command line
    *,
    as_json: JsonOption = False,
) -> None:
    """List dead letters, oldest first."""

    async def show() -> None:
        states: Sequence[State] = dead_letters.STATES if every else ("open", "exhausted")
        found = dead_letters.select(await _operations().load(), Filter((), reason, tenant, topic), states=states)
        if as_json:
            output.print_json([_plain(letter) for letter in found])
        elif not found:
            output.console.print("No dead letters.")
        else:
            rows = [
                (one.id, one.reason, one.tenant, f"{one.topic}/{one.partition}/{one.offset}", one.state, one.replays)
                for one in found
            ]
            output.print_table(("id", "reason", "tenant", "from", "state", "replays"), rows)

    output.run(show, as_json=as_json)


@app.command()
def show(
    letter_id: Annotated[str, typer.Argument(help="The dead letter's id.")],
    reveal: Annotated[bool, typer.Option("--reveal", help="Also what the record says, which may be personal.")] = False,  # noqa: FBT002 -- a flag of the command line
    *,
    as_json: JsonOption = False,
) -> None:
    """Show one dead letter: why, and the shape of what the record holds; with --reveal what it says."""

    async def tell() -> None:
        letter = await _letter(_operations(), letter_id)
        facts = _plain(letter) | (_content(letter) if reveal else _masked(letter))
        if as_json:
            output.print_json(facts)
        else:
            output.print_table(("what", "value"), [(name, value) for name, value in facts.items() if value not in ("", None)])

    output.run(tell, as_json=as_json)


@app.command()
def replay(
    ids: Ids = None,
    reason: Reason = None,
    tenant: Tenant = None,
    topic: Topic = None,
    rate: Annotated[float, typer.Option(min=0.1, max=10_000, help="At most so many a second.")] = 50.0,
    dry_run: DryRun = False,  # noqa: FBT002 -- a flag of the command line
    *,
    as_json: JsonOption = False,
) -> None:
    """Send dead letters back to where they came from. Running it again, or twice at once, adds nothing."""

    async def send() -> None:
        outcome = await _operations().replay(_wanted(ids, reason, tenant, topic), rate_per_s=rate, dry_run=dry_run)
        error = ReplayRefusedError(f"{len(outcome.refused)} refused: {'; '.join(outcome.refused[:5])}")
        if as_json and outcome.refused:
            output.fail_with({"replayed": outcome.done, "refused": outcome.refused, "dry_run": dry_run}, error)
        _report("replayed", outcome.done, outcome.refused, dry_run=dry_run, as_json=as_json)
        if outcome.refused:
            raise error

    output.run(send, as_json=as_json)


@app.command()
def discard(
    ids: Ids = None,
    reason: Reason = None,
    tenant: Tenant = None,
    topic: Topic = None,
    because: Annotated[str, typer.Option(help="Why they are given up; kept with your name.")] = "",
    dry_run: DryRun = False,  # noqa: FBT002 -- a flag of the command line
    *,
    as_json: JsonOption = False,
) -> None:
    """Give dead letters up, with a reason."""

    async def write() -> None:
        ids_given_up = await _operations().discard(_wanted(ids, reason, tenant, topic), reason=because, dry_run=dry_run)
        _report("discarded", ids_given_up, [], dry_run=dry_run, as_json=as_json)

    output.run(write, as_json=as_json)


@app.command()
def edit(
    letter_id: Annotated[str, typer.Argument(help="The dead letter's id.")],
    because: Annotated[str, typer.Option(help="Why it is changed; kept with your name and with what you changed.")] = "",
    value_file: Annotated[Path | None, typer.Option(help="A file with the whole new value.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="/pointer=JSON, or /pointer=text where that is no JSON. May be repeated.")
    ] = None,
    remove: Annotated[list[str] | None, typer.Option(help="/pointer of a member to remove. May be repeated.")] = None,
    editor: Annotated[str, typer.Option(envvar=["VISUAL", "EDITOR"], help="What opens the value when nothing else is given.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Send it back; otherwise only what would change is shown.")] = False,  # noqa: FBT002 -- a flag of the command line
    *,
    as_json: JsonOption = False,
) -> None:
    """Change a dead letter's value and send it back, once. Without --yes it says what would change and writes nothing."""

    async def change() -> None:
        operations = _operations()
        letter = await _letter(operations, letter_id)
        value = await edited_value(letter.record.value, file=value_file, sets=set_ or (), removes=remove or (), editor=editor)
        told = await operations.edit(letter, value, reason=because, dry_run=not yes)
        tell_edit(letter_id, told, dry_run=not yes, as_json=as_json)

    output.run(change, as_json=as_json)


async def _letter(operations: Operations, letter_id: str) -> DeadLetter:
    found = dead_letters.select(await operations.load(), Filter((letter_id,)), states=dead_letters.STATES)
    if not found:
        raise RejectedError(f"no dead letter {letter_id}", code="unknown")
    return found[0]


def _operations() -> Operations:
    return Operations(load_settings(), operator=getpass.getuser())


def _wanted(ids: list[str] | None, reason: str | None, tenant: str | None, topic: str | None) -> Filter:
    if not ids and not any((reason, tenant, topic)):
        raise ReplayRefusedError("name dead letters, or a filter: --reason, --tenant, --topic", code="nothing_named")
    return Filter(tuple(ids or ()), reason, tenant, topic)


def _report(verb: str, ids: list[str], refused: list[str], *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        output.print_json({verb: ids, "refused": refused, "dry_run": dry_run})
    else:
        output.console.print(f"{len(ids)} {'would be ' if dry_run else ''}{verb}")


def _plain(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "state": letter.state,
        "reason": letter.reason,
        "message": letter.message,
        "exception": letter.exception,
        "tenant": letter.tenant,
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "group": letter.group,
        "first_failed_at": dead_letters.instant(letter.first_failed_at_ms),
        "last_failed_at": dead_letters.instant(letter.last_failed_at_ms),
        "replays": letter.replays,
    }


def _masked(letter: DeadLetter) -> dict[str, Any]:
    headers = [[shown(name), masked_text(value)] for name, value in letter.original_headers]
    edit = letter.edit and masked_facts(letter.edit.model_dump())
    edits = {"value_written_by_an_operator": letter.is_edited or None, "edit": edit}
    return {"key": masked_text(letter.record.key), "value": masked_value(letter.record.value), "headers": headers, **edits}


def _content(letter: DeadLetter) -> dict[str, Any]:
    def text(value: bytes | None) -> str | None:
        return None if value is None else value.decode(errors="backslashreplace")

    headers = [[shown(name), text(value)] for name, value in letter.original_headers]
    edits = {"value_written_by_an_operator": letter.is_edited or None, "edit": letter.edit and letter.edit.model_dump()}
    return {"key": text(letter.record.key), "value": text(letter.record.value), "headers": headers, **edits}
