"""A tool that reads public web pages, for toolsets that want it. No toolset has it of itself."""

from typing import Final, Protocol

from flows.agent.tools import Tool, ToolContext, ToolRefusedError, tool
from topics.errors import RejectedError

FETCH_TIMEOUT_S: Final = 10.0


class PageReader(Protocol):
    """Text of public web pages."""

    async def fetch(self, url: str, *, timeout_s: float) -> str:
        """Read a page.

        Raises:
            RejectedError: It is no public page, or could not be read. The text may be shown to a model.
        """
        ...


def fetch_page_tool(reader: PageReader) -> Tool:
    """The tool `fetch_page` over a reader. What it brings is a tool's result like any other: text to read, cut and never obeyed."""

    @tool(effect="READ", timeout_s=FETCH_TIMEOUT_S + 1)
    async def fetch_page(context: ToolContext, *, url: str) -> str:  # noqa: ARG001 -- the shape of every tool
        """Read a public web page and return its text."""
        try:
            return await reader.fetch(url, timeout_s=FETCH_TIMEOUT_S)
        except RejectedError as error:
            raise ToolRefusedError(str(error)) from error

    return fetch_page
