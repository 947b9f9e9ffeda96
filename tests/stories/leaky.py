"""What leaks if it can: a tool whose bug quotes its argument, and a redactor that always fails."""

from flows.agent.tools import ToolContext, Toolset, tool


@tool(effect="READ")
async def read_note(context: ToolContext, *, text: str) -> str:  # noqa: ARG001 the shape of every tool
    """Read a note."""
    raise RuntimeError(f"cannot read {text}")


toolset = Toolset(name="leaky", instructions="Read the note.", tools=(read_note,))


def broken_redactor(text: str) -> str:
    """Fail, and quote."""
    raise RuntimeError(f"cannot redact {text}")
