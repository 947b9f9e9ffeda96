"""Every command, on one screen."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from topics.errors import SluiceError
from workers.cli import output


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command lives. Its module is loaded when it is called: the model client alone takes seconds to import."""

    module: str
    attribute: str
    help: str

    def load(self, name: str) -> Any:
        """Import the command, or the group of commands."""
        found = getattr(import_module(self.module), self.attribute)
        return get_group(found) if isinstance(found, typer.Typer) else get_command(_alone(name, found))


COMMANDS: Final = {
    "demo": Place(
        "workers.cli.stack",
        "demo",
        "Show the whole job in about two minutes: triage, answers, approvals, dead letters, and a killed worker.",
    ),
    "up": Place("workers.cli.stack", "up", "Start the embedded stack and the workers."),
    "worker": Place("workers.cli.worker", "worker", "Run workers in this process."),
    "topics": Place("workers.cli.topics", "app", "Compare the cluster's topics with the catalogue, and mend the difference."),
    "publish": Place("workers.cli.messages", "publish", "Publish events to an input topic."),
    "ask": Place("workers.cli.messages", "ask", "Ask the agent and stream its answer."),
    "approvals": Place("workers.cli.approvals", "app", "See what waits for a person, and decide."),
    "audit": Place("workers.cli.audit", "app", "Prove what became of every decision, and export it."),
    "dead": Place("workers.cli.dead", "app", "Look into dead letters, send them back, as they are or edited, or discard them."),
    "threads": Place("workers.cli.threads", "app", "See how a conversation stands, call it off, or go on with what it left open."),
    "eval": Place("workers.cli.evaluation", "app", "Run a dataset through the agent, score it, and compare two runs."),
    "triage": Place("workers.cli.triage", "app", "Show the model how a tenant wants its tickets sorted."),
    "offsets": Place("workers.cli.offsets", "app", "See where the consumer groups stand, and set where they go on."),
    "doctor": Place("workers.cli.doctor", "doctor", "Check settings, Kafka, topics, Redis, the model and the toolsets."),
    "asyncapi": Place("workers.cli.contract", "asyncapi", "Print the AsyncAPI document of every topic."),
}


class LoadedWhenCalled(TyperGroup):
    """Lists commands by their lines above, and imports only the one that is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Put the real command in the place of its line."""
        name = args[0]
        if name in COMMANDS:
            self.commands[name] = COMMANDS[name].load(name)
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="sluice",
    cls=LoadedWhenCalled,
    help="AI support-ticket work on Kafka, with a gate wherever a person must say yes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _alone(name: str, command: Callable[..., None]) -> typer.Typer:
    holder = typer.Typer(add_completion=False)
    holder.command(name)(command)
    return holder


def _line() -> None:
    """Stand for a command in the list."""


for _name, _place in COMMANDS.items():
    app.command(_name, help=_place.help)(_line)


def main() -> None:
    """Run the command line."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # its user gets a sentence; a worker configures its own log
    try:
        app()
    except SluiceError as error:
        try:
            output.fail(error)
        except typer.Exit as end:
            raise SystemExit(end.exit_code) from None
