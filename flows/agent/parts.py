"""What the graph's nodes are made of."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel

from flows.agent import search
from flows.agent.call_offs import CallOffs
from flows.agent.tools import Tool, Toolset
from flows.approvals.policy import ApprovalPolicy, Policy
from flows.ports import Clock, EffectLedger, Retriever, ToolService
from topics.errors import ConfigError


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """Bounds of one query. `delta_interval_s` is how long text may wait to travel with later text.

    `history_tokens` bounds the exchanges that a model sees word for word; older ones are left in a summary of `summary_tokens`
    at most. With 0 there is none, and they are forgotten.
    """

    max_model_calls_per_query: int = 25
    max_calls_per_turn: int = 50
    history_tokens: int = 8_000
    summary_tokens: int = 800
    summary_timeout_s: float = 30.0
    delta_interval_s: float = 0.05
    tool_result_chars: int = 16_000
    passages_per_search: int = 8


@dataclass(frozen=True, slots=True)
class AgentParts:
    """The collaborators of every node."""

    model: BaseChatModel
    toolset_for: Callable[[str], Toolset]
    service: ToolService
    retriever: Retriever
    ledger: EffectLedger
    clock: Clock
    policy: Policy = field(default_factory=ApprovalPolicy)
    limits: AgentLimits = field(default_factory=AgentLimits)
    call_offs: CallOffs = field(default_factory=CallOffs)
    link_hosts_for: Callable[[str], Collection[str]] = lambda _tenant: ()
    callbacks: Sequence[BaseCallbackHandler] = ()

    def toolset(self, tenant: str) -> Toolset:
        """The tenant's tools, and the search beside them.

        Raises:
            ConfigError: The tenant's toolset has a tool with the search tool's name.
        """
        own = self.toolset_for(tenant)
        if search.TOOL.name in own.by_name:
            raise ConfigError(f"toolset {own.name}: rename its tool {search.TOOL.name}, the name is built in")
        return Toolset(own.name, own.instructions, (search.TOOL, *own.tools), own.pinned)

    def tool(self, tenant: str, name: str) -> Tool | None:
        """One of the tenant's tools."""
        return self.toolset(tenant).by_name.get(name)
