"""What must be said about a ticket: by the model, and by whoever shows it an example."""

from collections.abc import Sequence
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

SUMMARY_CHARS: Final = 500


class Finding(BaseModel):
    """How a ticket is sorted; nothing is coerced."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    intent: str
    priority: Literal["low", "normal", "high", "urgent"]
    needs_person: bool
    summary: str = Field(max_length=SUMMARY_CHARS)


def schema_for(intents: Sequence[str]) -> dict[str, Any]:
    """The JSON schema of a finding, in the subset that strict structured output takes."""
    properties = {
        "intent": {"type": "string", "enum": list(intents)},
        "priority": {"type": "string", "enum": ["low", "normal", "high", "urgent"]},
        "needs_person": {"type": "boolean"},
        "summary": {"type": "string"},
    }
    return {
        "title": "triage",
        "description": "What a support ticket is about.",
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def complaint_of(error: ValidationError, *, whole: str = "answer") -> str:
    """Which fields do not fit, and why; never their values. What is wrong with all of it is said of `whole`."""
    details = error.errors(include_input=False, include_context=False, include_url=False)
    return "; ".join(f"{'.'.join(map(str, detail['loc'])) or whole}: {detail['msg']}" for detail in details[:5])
