"""What to say. Deterministic: the same request gets the same reply."""

import re
from itertools import pairwise
from typing import Any, Final

import orjson

from infra.local.model_server import answers, schemas, summaries, tasks, words
from infra.local.model_server.completions import ChatRequest, Reply, ToolCall
from infra.local.model_server.tasks import TaskBook
from infra.local.model_server.triage import Triage, is_triage

SEARCH_TOOL: Final = "search_articles"
QUOTE_CHARS: Final = 160
_TICKET: Final = "<ticket>"

_ABOUT_BEFORE: Final = re.compile(
    r"\b(before|earlier|previous(?:ly)?|remember|last (?:question|time|message)|(?:did|have) i (?:ask|say|said|want)|thanks?)\b",
    re.IGNORECASE,
)
_SUMMARISE: Final = re.compile(r"\s*summari[sz]e\b", re.IGNORECASE)
_REPAIR: Final = re.compile(r"\b(not valid|invalid|schema|valid json|validation error)\b", re.IGNORECASE)
_QUESTION_LABEL: Final = re.compile(r"^\s*question\s*:\s*(.+)", re.IGNORECASE | re.MULTILINE | re.DOTALL)


class Brain:
    """Chooses a reply for a request. `parallel`: retail changes come all in one turn."""

    def __init__(self, *, triage: Triage, book: TaskBook) -> None:
        self._triage = triage
        self._book = book
        self.parallel = False

    async def reply(self, request: ChatRequest) -> Reply:
        """The reply, by the first rule that fits: a forced call, a schema, a known task, a question, else small talk."""
        if request.must_call and request.tools:
            return await self._forced_call(request)
        if request.schema is not None:
            filled = await self._fill(request.schema, request)
            return Reply(text=orjson.dumps(filled).decode())
        if request.wants_json:
            return Reply(text=orjson.dumps({"text": request.asked}).decode())
        if not request.tools and (lines := summaries.asked_for(request)) is not None:
            return Reply(text=lines)
        task = self._book.find(request.asked) if request.tools else None
        if task:
            parallel = self.parallel or tasks.PARALLEL_MARK in request.asked
            return tasks.play(task, request, parallel=parallel)
        return _converse(request)

    async def _forced_call(self, request: ChatRequest) -> Reply:
        name = request.must_call if isinstance(request.must_call, str) else _best_tool(request)
        arguments = await self._fill(request.tools.get(name, {}), request)
        return Reply(tool_calls=(ToolCall(name, arguments),))

    async def _fill(self, schema: dict[str, Any], request: ChatRequest) -> dict[str, Any]:
        text = _subject(request)
        if is_triage(schema):
            return await self._triage.fill(schema, text, _shown(request))
        return schemas.instance(schema, text=text)


def _converse(request: ChatRequest) -> Reply:
    asked = request.asked
    if _ABOUT_BEFORE.search(asked):
        if (known := summaries.recall(request)) is not None:
            return Reply(text=f"You told me: {_quote(known)}.")
        if request.asked_before:
            return Reply(text=_remind(request))
    if SEARCH_TOOL in request.tools or _searched(request):
        return _look_up(request)
    given = [
        passage for message in request.messages if message.role != "assistant" for passage in answers.read_passages(message.text)
    ]
    if given:
        return Reply(text=answers.answer(_bare_question(asked), given))
    if not request.tools and any(_SUMMARISE.match(message.text) for message in request.messages):
        return Reply(text=_summary(request))
    return Reply(text=_remind(request) if request.asked_before else _greet(asked))


def _look_up(request: ChatRequest) -> Reply:
    found = [message.text for message in request.since_asked if message.role == "tool"]
    if not found:
        return Reply(tool_calls=(ToolCall(SEARCH_TOOL, {"query": request.asked}),))
    passages = [passage for text in found for passage in answers.read_passages(text)]
    return Reply(text=answers.answer(request.asked, passages))


def _searched(request: ChatRequest) -> bool:
    return any(SEARCH_TOOL in message.calls for message in request.since_asked)


def _subject(request: ChatRequest) -> str:
    """The text to fill a schema from: the last ticket, else the last user message that complains of no earlier answer."""
    asked = (*request.asked_before, request.asked)
    framed = [text for text in asked if _TICKET in text]
    return framed[-1] if framed else next((text for text in reversed(asked) if not _REPAIR.search(text)), asked[-1])


def _shown(request: ChatRequest) -> list[tuple[str, str]]:
    """Tickets that are shown as examples, each with its answer; what the last ticket was answered is no example."""
    said = [message for message in request.messages if message.role in {"user", "assistant"}]
    last = max((at for at, message in enumerate(said) if _TICKET in message.text), default=0)
    return [
        (ticket.text, answer.text)
        for ticket, answer in pairwise(said[:last])
        if ticket.role == "user" and _TICKET in ticket.text and answer.role == "assistant"
    ]


def _bare_question(asked: str) -> str:
    """The question of a prompt that carries the passages with it."""
    labelled = _QUESTION_LABEL.search(asked)
    return labelled[1] if labelled else asked


def _best_tool(request: ChatRequest) -> str:
    asked = set(words.content_words(request.asked))
    return max(request.tools, key=lambda name: len(asked & set(words.content_words(name.replace("_", " ")))))


def _remind(request: ChatRequest) -> str:
    before = "; ".join(_quote(text) for text in request.asked_before)
    return f"You asked before: {before}. Now you ask: {_quote(request.asked)}."


def _summary(request: ChatRequest) -> str:
    return f"The customer asked: {'; '.join(_quote(m.text) for m in request.messages if m.role == 'user')}."


def _greet(asked: str) -> str:
    return f"Thank you for your message. You wrote: {_quote(asked)}. Tell me what I can do for you."


def _quote(text: str) -> str:
    return f"\N{LEFT DOUBLE QUOTATION MARK}{words.first_sentence(text, max_chars=QUOTE_CHARS)}\N{RIGHT DOUBLE QUOTATION MARK}"
