"""What binds an approval to one action: its id, its digest, and the key of its effect. Pure.

The digest is SHA-256 over RFC 8785 canonical JSON of `{tool, arguments, thread, interrupt, policy_version}`, so that an
approver's own program can compute it. `thread` is the record key, `tenant/thread`. LangGraph derives an interrupt's id while it
interrupts, too late to be signed; the approval id names the same pause and stands in its place.
"""

import hashlib
from typing import Any

import rfc8785

from flows.agent.state import ThreadRef
from topics.envelope import event_id_for


class UndigestableError(ValueError):
    """Arguments that canonical JSON cannot say exactly: not finite, or an integer beyond 2**53."""


def canonical(value: Any) -> bytes:
    """Canonical JSON of a JSON value.

    Raises:
        UndigestableError: The value has no exact canonical form.
    """
    try:
        return rfc8785.dumps(value)
    except rfc8785.CanonicalizationError as error:
        raise UndigestableError("a number is out of range") from error


def approval_id_for(thread: ThreadRef, *, message_id: str, tool: str, arguments: dict[str, Any], asking: int = 0) -> str:
    """The id of one asking about one call: the same call of the same stored message has it on every re-run.

    `message_id` is that of the call's answer, one for each place of a call in a message.
    """
    action = hashlib.sha256(canonical({"tool": tool, "arguments": arguments})).hexdigest()
    return event_id_for(cause=thread.checkpoint_id, event_type="approval", ordinal=f"{message_id}\n{asking}\n{action}")


def doubt_id_for(thread: ThreadRef, *, effect_key: str, attempt: int, asking: int = 0) -> str:
    """The id of one asking about an effect that is in doubt after its `attempt`-th try."""
    return event_id_for(cause=thread.checkpoint_id, event_type="approval.in_doubt", ordinal=f"{effect_key}\n{attempt}\n{asking}")


def args_digest_for(thread: ThreadRef, *, approval_id: str, tool: str, arguments: dict[str, Any], policy_version: str) -> str:
    """What an approver must echo, in hex."""
    signed = {
        "tool": tool,
        "arguments": arguments,
        "thread": f"{thread.tenant}/{thread.thread_id}",
        "interrupt": approval_id,
        "policy_version": policy_version,
    }
    return hashlib.sha256(canonical(signed)).hexdigest()


def effect_key_for(approval_id: str, digest: str) -> str:
    """The idempotency key of an effect: one for each approved action, whoever runs it again."""
    return hashlib.sha256(f"{approval_id}\n{digest}".encode()).hexdigest()


def ledger_key_for(effect_key: str, attempt: int) -> str:
    """Where the ledger keeps one try of an effect. Later tries have a claim of their own, under the same idempotency key."""
    return effect_key if attempt == 0 else hashlib.sha256(f"{effect_key}\n{attempt}".encode()).hexdigest()


def short_id(text: str) -> str:
    """A call id for a call that has none of its own; providers take at most 40 characters."""
    return "call_" + hashlib.sha256(text.encode()).hexdigest()[:24]
