"""From what a model wrote to calls that may be judged: ids that are unique, arguments that fit the schema. Pure."""

import json
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.messages import AIMessage, InvalidToolCall, ToolCall, ToolMessage
from pydantic import ValidationError

from flows import streaming
from flows.agent import digests
from flows.agent.approval_policy import ApprovalPolicy, Deny, Judgement
from flows.agent.state import Call, ThreadRef
from flows.agent.tools import Arguments, Tool, Toolset
from topics.text import clean_json, clean_text

MAX_PROBLEM_CHARS: Final = 400
_KEPT_METADATA: Final = ("finish_reason", "model_name")


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
        InvalidArgumentsError: They do not fit the tool's schema, or have no exact canonical form.
    """
    try:
        arguments = tool.arguments.model_validate_json(json.dumps(raw))
        digests.canonical(arguments.model_dump(mode="json"))
    except ValidationError as error:
        raise InvalidArgumentsError(_rules_broken(error)) from error
    except (digests.UndigestableError, ValueError, TypeError, RecursionError) as error:
        raise InvalidArgumentsError("the arguments are not plain JSON, or a number is out of range") from error
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


def storable_message(raw: AIMessage, *, message_id: str, taken_ids: AbstractSet[str]) -> AIMessage:
    """What a model wrote, as it is stored: text only, its calls once each under ids that nobody else has.

    Args:
        raw: The merged message of one model turn.
        message_id: The id to store it under.
        taken_ids: Call ids that already stand in the thread.
    """
    taken = set(taken_ids)
    tool_calls: list[ToolCall] = []
    for index, call in enumerate(_without_repeats(raw.tool_calls)):
        call_id = _free_id(call["id"], taken=taken, fallback=f"{message_id}:{index}")
        tool_calls.append(ToolCall(type="tool_call", id=call_id, name=clean_text(call["name"]), args=clean_json(call["args"])))
    broken: list[InvalidToolCall] = []
    for index, call in enumerate(raw.invalid_tool_calls, len(tool_calls)):
        call_id = _free_id(call["id"], taken=taken, fallback=f"{message_id}:{index}")
        name, args = clean_text(call["name"] or "unknown"), clean_text(call["args"] or "")
        broken.append(InvalidToolCall(type="invalid_tool_call", id=call_id, name=name, args=args, error=None))
    return AIMessage(
        content=streaming.storable_text(streaming.text_of(raw)),
        id=message_id,
        tool_calls=tool_calls,
        invalid_tool_calls=broken,
        usage_metadata=raw.usage_metadata,
        response_metadata={name: raw.response_metadata[name] for name in _KEPT_METADATA if name in raw.response_metadata},
    )


def _without_repeats(tool_calls: list[ToolCall]) -> list[ToolCall]:
    kept: list[ToolCall] = []
    for call in tool_calls:
        # Some providers send one call twice; only id, name and arguments together tell that from two equal orders.
        if not (call["id"] and any(_same(call, other) for other in kept)):
            kept.append(call)
    return kept


def _same(call: ToolCall, other: ToolCall) -> bool:
    same_text = json.dumps(call["args"], sort_keys=True) == json.dumps(other["args"], sort_keys=True)
    return call["id"] == other["id"] and call["name"] == other["name"] and same_text


def _free_id(wanted: str | None, *, taken: set[str], fallback: str) -> str:
    wanted = clean_text(wanted or "")
    number = 1
    call_id = wanted or digests.short_id(fallback)
    while call_id in taken:
        number += 1
        call_id = digests.short_id(f"{fallback}:{wanted}:{number}")
    taken.add(call_id)
    return call_id


def read_calls(
    message: AIMessage, *, thread: ThreadRef, query_id: str, requester: str | None, toolset: Toolset, policy: ApprovalPolicy
) -> list[Judged | Problem]:
    """Read and judge the calls of a stored message, in order. The same message gives the same calls, whoever reads it."""
    read: list[Judged | Problem] = []
    for index, tool_call in enumerate(message.tool_calls):
        message_id, call_id, name = f"{message.id}:{index}", tool_call["id"] or "", tool_call["name"]
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
        approval_id = digests.approval_id_for(thread, message_id=message.id or "", index=index, tool=name, arguments=arguments)
        call = Call(
            approval_id=approval_id,
            call_id=call_id,
            message_id=message_id,
            tool=name,
            arguments=arguments,
            args_digest=digests.args_digest_for(
                thread, approval_id=approval_id, tool=name, arguments=arguments, policy_version=policy.version
            ),
            query_id=query_id,
            requester=requester,
            asked=False,
            edited=False,
        )
        read.append(Judged(call, tool, judgement))
    return [*read, *_unreadable(message)]


def _unreadable(message: AIMessage) -> list[Problem]:
    start = len(message.tool_calls)
    return [
        Problem(call["id"] or "", f"{message.id}:{index}", (call["name"] or "")[:100], "The arguments are not valid JSON.")
        for index, call in enumerate(message.invalid_tool_calls, start)
    ]
