"""What is asked of the agent about a request before a decision counts: can this build do it, and what would an edit be."""

from collections.abc import Container
from dataclasses import dataclass
from typing import Any, Final, Literal

from flows.agent import calls, digests
from flows.agent.parts import AgentParts
from flows.agent.state import AgentState, ThreadRef
from flows.approvals.policy import Allow, Ask, Deny
from topics.events import ApprovalRequested
from topics.text import clean_json

_RUNS: Final = ("approve", "edit")


@dataclass(frozen=True, slots=True)
class EditProblem:
    """Why an edit cannot count. The detail quotes no value."""

    code: Literal["edit_changes_tool", "unknown_tool", "invalid_arguments", "denied"]
    detail: str


@dataclass(frozen=True, slots=True)
class JudgedEdit:
    """An edit that may count: arguments as they would run, the digest to echo, and what the policy says of them."""

    arguments: dict[str, Any]
    args_digest: str
    judgement: Allow | Ask


def build_problem(
    parts: AgentParts, request: ApprovalRequested, *, tenant: str, decision: str, graphs: Container[str | None]
) -> str | None:
    """Why this build cannot do what was decided, or None. `graphs` are the graph versions that it resumes."""
    if request.graph_version not in graphs:
        return f"the thread was paused by graph {request.graph_version}"
    return call_problem(parts, request.tool, request.arguments, tenant=tenant) if decision in _RUNS else None


def call_problem(parts: AgentParts, tool: str, arguments: dict[str, Any], *, tenant: str) -> str | None:
    """Why this build cannot run a call as it was shown, or None."""
    known = parts.tool(tenant, tool)
    if known is None:
        return "this build has no such tool"
    try:
        unchanged = calls.plain_arguments(known, arguments) == arguments
    except calls.InvalidArgumentsError:
        unchanged = False
    return None if unchanged else "the tool takes other arguments in this build"


def approved_problem(parts: AgentParts, state: AgentState, *, tenant: str) -> str | None:
    """The same for what the current query's calls were approved to do and have not done yet."""
    done = state.get("executed", {})
    problems = (
        call_problem(parts, record["tool"], record["arguments"], tenant=tenant)
        for approval_id, record in state.get("decisions", {}).items()
        if record["query_id"] == state.get("query_id") and record["decision"] in _RUNS and approval_id not in done
    )
    return next((problem for problem in problems if problem is not None), None)


def judge_edit(
    parts: AgentParts, request: ApprovalRequested, *, tool: str | None, arguments: dict[str, Any] | None, tenant: str
) -> JudgedEdit | EditProblem:
    """Read and judge an edit: same tool, valid arguments, and the policy's word on the edited call."""
    if tool is not None and tool != request.tool:
        return EditProblem("edit_changes_tool", "an edit cannot change the tool")
    known = parts.tool(tenant, request.tool)
    if known is None:
        return EditProblem("unknown_tool", "the tenant no longer has this tool")
    try:
        edited = calls.plain_arguments(known, clean_json(arguments))
    except calls.InvalidArgumentsError as error:
        return EditProblem("invalid_arguments", str(error))
    judgement = parts.policy.verdict_on(known, edited, tenant=tenant, requester=request.requester)
    if isinstance(judgement, Deny):
        return EditProblem("denied", judgement.reason[: calls.MAX_PROBLEM_CHARS])
    digest = digests.args_digest_for(
        ThreadRef(tenant, request.thread_id),
        approval_id=request.approval_id,
        tool=request.tool,
        arguments=edited,
        policy_version=parts.policy.version_of(tenant),
    )
    return JudgedEdit(edited, digest, judgement)
