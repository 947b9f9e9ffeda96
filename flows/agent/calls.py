"""From a stored message to calls that are judged, or to why they cannot run. Pure."""

import json
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.messages import AIMessage, ToolMessage
from pydantic import ValidationError

from flows.agent import digests
from flows.agent.state import Call, ThreadRef
from flows.agent.tools import Arguments, Tool, Toolset
from flows.approvals.policy import Deny, Judgement, Policy
from topics import sizes
from topics.text import clean_text

MAX_PROBLEM_CHARS: Final = 400


class InvalidArgumentsError(ValueError):
    """The arguments do not fit the tool. The text names fields and rules and quotes no value."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A call that cannot run, and what the model is told about it."""

    call_id: str
    message_id: str
    tool: str
    text: str

    def answer(self) -> ToolMessage:
        """The one answer to the call."""
        return answer_to(self.call_id, message_id=self.message_id, tool=self.tool, text=self.text, ok=False)


@dataclass(frozen=True, slots=True)
class Judged:
    """A call with the policy's word on it."""

    call: Call
    tool: Tool
    judgement: Judgement


def answer_to(call_id: str, *, message_id: str, tool: str, text: str, ok: bool) -> ToolMessage:
    """A tool message whose id is its call's, so that a re-run replaces it instead of adding a second one."""
    status = "success" if ok else "error"
    return ToolMessage(content=text, tool_call_id=call_id, id=message_id, name=tool or "unknown", status=status)


def parse_arguments(tool: Tool, raw: Any) -> Arguments:
    """Validate JSON arguments strictly.

    Raises:
        InvalidArgumentsError: They do not fit the tool's schema, have no exact canonical form, or are too large to be asked about.
    """
    try:
        arguments = tool.arguments.model_validate_json(json.dumps(raw))
        canonical = digests.canonical(arguments.model_dump(mode="json"))
    except ValidationError as error:
        raise InvalidArgumentsError(_rules_broken(error)) from error
    except (digests.UndigestableError, ValueError, TypeError, RecursionError) as error:
        raise InvalidArgumentsError("the arguments are not plain JSON, or a number is out of range") from error
    if len(canonical) > sizes.MAX_ARGUMENTS_BYTES:
        raise InvalidArgumentsError(f"the arguments are larger than {sizes.MAX_ARGUMENTS_BYTES:,} bytes")
    return arguments


def plain_arguments(tool: Tool, raw: Any) -> dict[str, Any]:
    """Validated arguments as JSON, defaults filled in: what is shown, digested and run.

    Raises:
        InvalidArgumentsError: As `parse_arguments`.
    """
    return parse_arguments(tool, raw).model_dump(mode="json")


def _rules_broken(error: ValidationError) -> str:
    rules = [
        f"{'.'.join(str(part) for part in rule['loc']) or 'arguments'}: {rule['msg']}"
        for rule in error.errors(include_input=False, include_url=False, include_context=False)
    ]
    return clean_text("; ".join(rules))[:MAX_PROBLEM_CHARS]


def read_calls(
    message: AIMessage,
    *,
    thread: ThreadRef,
    query_id: str,
    requester: str | None,
    toolset: Toolset,
    policy: Policy,
    limit: int,
    asking: int = 0,
) -> list[Judged | Problem]:
    """Read and judge the calls of a stored message, in order. The same message gives the same calls, whoever reads it.

    `limit` is how many calls of a turn are taken; each one behind them is answered, and not run. `asking` is how often they were
    asked about anew; it goes into their approval ids.
    """
    read: list[Judged | Problem] = []
    for index, tool_call in enumerate(message.tool_calls):
        message_id, call_id, name = f"{message.id}:{index}", tool_call["id"] or "", tool_call["name"]
        if index >= limit:
            text = f"Not run: a turn can have {limit} calls at most. Order this one again later if it is still wanted."
            read.append(Problem(call_id, message_id, name[:100], text))
            continue
        tool = toolset.by_name.get(name)
        if tool is None:
            read.append(Problem(call_id, message_id, name[:100], "There is no such tool."))
            continue
        try:
            arguments = plain_arguments(tool, tool_call["args"])
        except InvalidArgumentsError as error:
            read.append(Problem(call_id, message_id, name, f"The arguments are invalid, nothing was run. {error}"))
            continue
        judgement = policy.verdict_on(tool, arguments, tenant=thread.tenant, requester=requester)
        if isinstance(judgement, Deny):
            read.append(Problem(call_id, message_id, name, f"A policy denies this call: {judgement.reason[:MAX_PROBLEM_CHARS]}"))
            continue
        approval_id = digests.approval_id_for(thread, message_id=message_id, tool=name, arguments=arguments, asking=asking)
        call = Call(
            approval_id=approval_id,
            call_id=call_id,
            message_id=message_id,
            tool=name,
            arguments=arguments,
            args_digest=digests.args_digest_for(
                thread, approval_id=approval_id, tool=name, arguments=arguments, policy_version=policy.version_of(thread.tenant)
            ),
            query_id=query_id,
            requester=requester,
            asked=False,
            edited=False,
            effect_key=None,
            attempt=0,
            told=None,
        )
        read.append(Judged(call, tool, judgement))
    return [*read, *_unreadable(message)]


def _unreadable(message: AIMessage) -> list[Problem]:
    start = len(message.tool_calls)
    return [
        Problem(
            call["id"] or "",
            f"{message.id}:{index}",
            (call["name"] or "")[:100],
            "The arguments are not valid JSON, or a number in them is out of range.",
        )
        for index, call in enumerate(message.invalid_tool_calls, start)
    ]
