"""What a signature on a decision says: the claims of its token, and what they must be for one decision.

A token is a JWS in compact form whose header has `alg` and `kid`, and whose payload has the claims below. `digest` is the
`args_digest` that was shown; `edited` and `message` are there when the decision has edited arguments or a message.
"""

import hashlib
from typing import Any, Final

import rfc8785
from pydantic import BaseModel, ConfigDict, Field

from topics.events import ApprovalDecided, Decision

MAX_LIFE_S: Final = 86_400
CLOCK_SKEW_S: Final = 60


class Claims(BaseModel):
    """What was signed. `aud` is the tenant, `approval` the approval's id, `jti` is used once; times in Unix seconds."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    sub: str = Field(min_length=1, max_length=200)
    aud: str
    thread: str
    approval: str
    tool: str
    digest: str
    decision: Decision
    edited: str | None = None
    message: str | None = None
    iat: int
    exp: int
    jti: str = Field(min_length=8, max_length=200)
    roles: list[str] = Field(default_factory=list[str])


def digest_of_edit(arguments: dict[str, Any]) -> str:
    """Hex SHA-256 over RFC 8785 canonical JSON of edited arguments.

    Raises:
        ValueError: A number in them has no exact form.
    """
    return hashlib.sha256(rfc8785.dumps(arguments)).hexdigest()


def digest_of_message(message: str) -> str:
    """Hex SHA-256 over a message in UTF-8."""
    return hashlib.sha256(message.encode("utf-8", "surrogatepass")).hexdigest()


def meant_by(decided: ApprovalDecided, *, tenant: str, tool: str) -> dict[str, str | None]:
    """The claims that say what is decided.

    Raises:
        ValueError: A number in the edited arguments has no exact form.
    """
    return {
        "aud": tenant,
        "thread": decided.thread_id,
        "approval": decided.approval_id,
        "tool": tool,
        "digest": decided.args_digest,
        "decision": decided.decision,
        "edited": None if decided.arguments is None else digest_of_edit(decided.arguments),
        "message": None if decided.message is None else digest_of_message(decided.message),
    }
