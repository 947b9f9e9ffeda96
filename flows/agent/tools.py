"""What a tool is: a typed async function, its class, its approval rule, and what the model is told about it."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model

from flows.approvals.policy import ToolClass
from flows.ports import Retriever, ToolService
from topics.events import Decision

EVERY_DECISION: Final[tuple[Decision, ...]] = ("approve", "edit", "reject", "respond")


class ToolRefusedError(Exception):
    """The back office understood the call and said no. The text may be shown to the model; nothing changed."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may use. Tenant and user come from the event, never from the model's arguments.

    `idempotency_key` is set for WRITE and IRREVERSIBLE calls and is the same on every re-run of one approved call.
    """

    tenant: str
    user_id: str | None
    idempotency_key: str | None
    service: ToolService
    retriever: Retriever


class Arguments(BaseModel):
    """Base of every argument model: no coercion, no extra names."""

    model_config = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool as the graph sees it.

    `effect`: READ changes nothing; WRITE may run again with the same idempotency key; IRREVERSIBLE never runs again unasked.
    `asks`: a person must say yes first. `lookup` tells what a keyed call did, for effects left in doubt.
    """

    name: str
    description: str
    arguments: type[Arguments]
    effect: ToolClass
    asks: bool
    run: Callable[[ToolContext, dict[str, Any]], Awaitable[str]]
    allowed_decisions: tuple[Decision, ...] = EVERY_DECISION
    timeout_s: float = 20.0
    lookup: Callable[[ToolContext], Awaitable[str | None]] | None = None

    def __post_init__(self) -> None:
        """Refuse an IRREVERSIBLE tool that does not ask."""
        if self.effect == "IRREVERSIBLE" and not self.asks:
            raise ValueError(f"tool {self.name}: an IRREVERSIBLE tool must ask")

    @property
    def argument_names(self) -> tuple[str, ...]:
        """What a policy's conditions may start from."""
        return tuple(self.arguments.model_fields)

    def schema(self) -> dict[str, Any]:
        """The tool as an OpenAI function."""
        parameters = self.arguments.model_json_schema()
        parameters.pop("title", None)
        return {"type": "function", "function": {"name": self.name, "description": self.description, "parameters": parameters}}


@dataclass(frozen=True, slots=True)
class Toolset:
    """The tools of a domain, and what the model is told before it uses them.

    `pinned` names tools that a conversation begins with: where there are too many tools to show, these are among them until one
    of them has been called.
    """

    name: str
    instructions: str
    tools: tuple[Tool, ...]
    pinned: tuple[str, ...] = ()
    by_name: dict[str, Tool] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index by name, and refuse two tools with one name."""
        by_name = {tool.name: tool for tool in self.tools}
        if len(by_name) != len(self.tools):
            raise ValueError(f"toolset {self.name}: two tools share a name")
        if unknown := set(self.pinned) - set(by_name):
            raise ValueError(f"toolset {self.name}: pinned, and not among its tools: {', '.join(sorted(unknown))}")
        object.__setattr__(self, "by_name", by_name)


def tool(
    *,
    effect: ToolClass,
    asks: bool | None = None,
    allowed_decisions: tuple[Decision, ...] = EVERY_DECISION,
    timeout_s: float = 20.0,
    lookup: Callable[[ToolContext], Awaitable[str | None]] | None = None,
) -> Callable[[Callable[..., Awaitable[str]]], Tool]:
    """Make a tool of `async def name(context: ToolContext, *, typed, arguments) -> str`.

    The docstring is the description the model reads. READ tools do not ask, others do, unless `asks` says otherwise.
    """

    def wrap(function: Callable[..., Awaitable[str]]) -> Tool:
        async def run(context: ToolContext, arguments: dict[str, Any]) -> str:
            return await function(context, **arguments)

        return Tool(
            name=function.__name__,
            description=inspect.getdoc(function) or "",
            arguments=_arguments_of(function),
            effect=effect,
            asks=effect != "READ" if asks is None else asks,
            run=run,
            allowed_decisions=allowed_decisions,
            timeout_s=timeout_s,
            lookup=lookup,
        )

    return wrap


def _arguments_of(function: Callable[..., Any]) -> type[Arguments]:
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for name, parameter in list(inspect.signature(function).parameters.items())[1:]:
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[name] = (hints[name], default)
    return create_model(f"{function.__name__}_arguments", __base__=Arguments, **fields)
