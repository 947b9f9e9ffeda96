"""Every command, on one screen."""

import typer

from topics.errors import SluiceError
from workers.cli import approvals, contract, dead, doctor, messages, output, stack, topics

app = typer.Typer(
    name="sluice",
    help="AI support-ticket work on Kafka, with a gate wherever a person must say yes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(stack.demo)
app.command("up")(stack.up)
app.command("worker")(stack.worker)
app.add_typer(topics.app, name="topics")
app.command("publish")(messages.publish)
app.command("ask")(messages.ask)
app.add_typer(approvals.app, name="approvals")
app.add_typer(dead.app, name="dead")
app.command("doctor")(doctor.doctor)
app.command("asyncapi")(contract.asyncapi)


def main() -> None:
    """Run the command line."""
    try:
        app()
    except SluiceError as error:
        try:
            output.fail(error)
        except typer.Exit as end:
            raise SystemExit(end.exit_code) from None
