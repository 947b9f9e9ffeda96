"""Tell LangChain's callbacks of what is no run of LangChain by itself: tools and searches.

The configuration is that of the run around it, which LangChain keeps in the context of the task.
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

from langchain_core.callbacks import AsyncCallbackManager
from langchain_core.documents import Document
from langchain_core.runnables.config import ensure_config, get_async_callback_manager_for_config

from flows.ports import Passage

T = TypeVar("T")


async def tool_run(name: str, arguments: Mapping[str, Any], work: Awaitable[T]) -> T:
    """Await a tool's work as a run of that tool."""
    manager = _manager()
    if manager is None:
        return await work
    run = await manager.on_tool_start({"name": name}, "", name=name, inputs=dict(arguments))
    try:
        result = await work
    except BaseException as error:
        await run.on_tool_error(error)
        raise
    await run.on_tool_end(result)
    return result


async def search_run(source: str, query: str, work: Awaitable[Sequence[Passage]]) -> Sequence[Passage]:
    """Await a search in a source as a run of a retriever."""
    manager = _manager()
    if manager is None:
        return await work
    run = await manager.on_retriever_start({"name": source}, query, name=source)
    try:
        passages = await work
    except BaseException as error:
        await run.on_retriever_error(error)
        raise
    await run.on_retriever_end([_document(passage) for passage in passages])
    return passages


def _manager() -> AsyncCallbackManager | None:
    """The callbacks of the run around this one; None when there are none."""
    manager = get_async_callback_manager_for_config(ensure_config())
    return manager if manager.handlers else None


def _document(passage: Passage) -> Document:
    facts = {"article_id": passage.article_id, "revision": passage.revision, "ordinal": passage.ordinal, "score": passage.score}
    return Document(page_content=passage.text, metadata=facts)
