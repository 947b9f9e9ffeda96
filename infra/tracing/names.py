"""Names of spans and attributes.

Source: OpenTelemetry's semantic conventions for messaging and for generative AI (1.41, both in development), and CloudEvents'.
What they have no name for begins with `sluice.`.
"""

from typing import Final

from opentelemetry.semconv._incubating.attributes import cloudevents_attributes as cloudevents
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai
from opentelemetry.semconv._incubating.attributes import messaging_attributes as messaging
from opentelemetry.semconv.attributes import error_attributes, exception_attributes, server_attributes

__all__ = ["cloudevents", "error_attributes", "exception_attributes", "gen_ai", "messaging", "server_attributes"]

SYSTEM: Final = "kafka"
PROCESS: Final = "process"
SEND: Final = "send"
CHAT: Final = "chat"
EMBEDDINGS: Final = "embeddings"
INVOKE_AGENT: Final = "invoke_agent"
EXECUTE_TOOL: Final = "execute_tool"
RETRIEVAL: Final = "retrieval"
AGENT: Final = "sluice"
PROVIDER: Final = "openai"  # the protocol; `server.address` says whose it is

TENANT: Final = "sluice.tenant"
TICKET: Final = "sluice.ticket"
PROMPT_VERSION: Final = "sluice.prompt_version"
NODE: Final = "sluice.node"
STEP: Final = "sluice.step"
ATTEMPT: Final = "sluice.attempt"
REASON: Final = "sluice.reason"
CORRELATION: Final = "sluice.correlation_id"
APPROVAL: Final = "sluice.approval_id"
SERVED_BY: Final = "sluice.provider"
COST_MICROCENTS: Final = "sluice.cost_microcents"
PASSAGES: Final = "sluice.passages"
INPUTS: Final = "sluice.inputs"
RELATION: Final = "sluice.relation"
