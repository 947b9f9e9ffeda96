"""How much of a conversation a model sees, and what a conversation must look like before it may.

An exchange is a user's message and everything up to the next one. Exchanges stay whole: a tool call without its answer, or an
answer without its call, is refused by every provider on every later turn.
"""

from collections.abc import Sequence

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately

from topics.errors import RejectedError


class MalformedHistoryError(RejectedError):
    """A conversation that no provider accepts; sending it could only fail, now and later."""

    code = "malformed_history"


def exchanges(messages: Sequence[AnyMessage]) -> list[list[AnyMessage]]:
    """Cut a conversation before each user's message, keeping its order."""
    cut: list[list[AnyMessage]] = []
    for message in messages:
        if isinstance(message, HumanMessage) or not cut:
            cut.append([])
        cut[-1].append(message)
    return cut


def fit_history(messages: Sequence[AnyMessage], budget_tokens: int) -> list[AnyMessage]:
    """Keep the system prompt and the newest whole exchanges that fit.

    The newest exchange stays even when it alone is too long: without it there is nothing to answer.

    Args:
        messages: A conversation, with or without a system prompt in front.
        budget_tokens: An approximate bound for all that is kept, system prompt included.
    """
    system = [message for message in messages[:1] if isinstance(message, SystemMessage)]
    newest_first = list(reversed(exchanges(messages[len(system) :])))
    kept = newest_first[:1]
    left = budget_tokens - count_tokens_approximately([*system, *(kept[0] if kept else [])])
    for exchange in newest_first[1:]:
        left -= count_tokens_approximately(exchange)
        # Stop at the first misfit: a gap in the conversation would be worse than a shorter one.
        if left < 0:
            break
        kept.append(exchange)
    return [*system, *(message for exchange in reversed(kept) for message in exchange)]


def call_ids(message: AIMessage) -> list[str]:
    """The ids of every call that the message asks for, unreadable ones included."""
    return [call["id"] or "" for call in (*message.tool_calls, *message.invalid_tool_calls)]


def open_call_ids(messages: Sequence[AnyMessage]) -> list[str]:
    """Calls that have no answer yet, in order."""
    answered = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    asked = [call_id for message in messages if isinstance(message, AIMessage) for call_id in call_ids(message)]
    return [call_id for call_id in asked if call_id not in answered]


def check_history(messages: Sequence[AnyMessage]) -> None:
    """Refuse a conversation in which a call and its answer do not meet, one to one and at once.

    Raises:
        MalformedHistoryError: The message says which rule failed, and quotes nothing.
    """
    waiting: set[str] = set()
    seen: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in waiting:
                raise MalformedHistoryError("a tool answer without an open call")
            waiting.remove(message.tool_call_id)
            continue
        if waiting:
            raise MalformedHistoryError("a tool call without an answer")
        if isinstance(message, AIMessage):
            ids = call_ids(message)
            if len(set(ids)) != len(ids) or not seen.isdisjoint(ids):
                raise MalformedHistoryError("two tool calls with one id")
            waiting.update(ids)
            seen.update(ids)
    if waiting:
        raise MalformedHistoryError("a tool call without an answer")
