"""The shop's tools without a look-up: what they did before a crash, nobody can tell but a person."""

from dataclasses import replace

from flows.agent.tools import Toolset
from flows.toolsets import retail

toolset = Toolset(
    name="forgetful",
    instructions=retail.toolset.instructions,
    tools=tuple(replace(tool, lookup=None) for tool in retail.toolset.tools),
)
