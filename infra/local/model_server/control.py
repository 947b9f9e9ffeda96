"""The control endpoints: a test scripts the server and reads what it was asked.

| endpoint | body |
| --- | --- |
| POST /control/faults | a `Fault` or a list of them |
| POST /control/replies | a `ScriptedReply` or a list of them |
| POST /control/pace | a `Pace`, for all chat requests that begin from now on |
| POST /control/limit | a `Limit`, for chat and embeddings together |
| POST /control/brain | a `Manner` |
| POST /control/reset | nothing; the scripts, the journal and all settings are as at the start |
| GET /control/requests | answers with the journal and the numbers of requests in flight |

A request meets, in this order: a scripted delay, a hang, the rate limit or a scripted status, then its reply.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast, get_args

from pydantic import BaseModel, ConfigDict, TypeAdapter

from infra.local.model_server.brain import Brain
from infra.local.model_server.faults import Fault, Kind, Pace, Script, ScriptedReply
from infra.local.model_server.journal import Journal
from infra.local.model_server.limits import Limit, Limiter

_FAULTS: Final = TypeAdapter(tuple[Fault, ...])
_REPLIES: Final = TypeAdapter(tuple[ScriptedReply, ...])
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
FIRST_KINDS: Final[tuple[Kind, ...]] = ("delay", "hang", "status")
LATER_KINDS: Final[tuple[Kind, ...]] = tuple(kind for kind in KINDS if kind not in FIRST_KINDS)


class Manner(BaseModel):
    """How the brain behaves. `parallel`: a retail task's changes come all in one turn."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    parallel: bool = False


@dataclass(slots=True)
class Controls:
    """Everything that can be scripted, and the journal."""

    brain: Brain
    start_pace: Pace
    pace: Pace = field(init=False)
    faults: Script[Fault] = field(default_factory=Script[Fault])
    replies: Script[ScriptedReply] = field(default_factory=Script[ScriptedReply])
    journal: Journal = field(default_factory=Journal)
    limiter: Limiter = field(default_factory=Limiter)

    def __post_init__(self) -> None:
        """Begin at the pace the server was started with."""
        self.pace = self.start_pace

    def handle(self, method: str, path: str, body: Any) -> dict[str, Any] | None:
        """Do what a control request asks; None when there is no such endpoint.

        Raises:
            ValidationError: The body is not what the endpoint takes. Nothing was changed.
        """
        match method, path.removeprefix("/control/"):
            case "GET", "requests":
                return self.journal.report()
            case "POST", "faults":
                self.faults.add(_FAULTS.validate_python(_listed(body)))
            case "POST", "replies":
                self.replies.add(_REPLIES.validate_python(_listed(body)))
            case "POST", "pace":
                self.pace = Pace.model_validate(body)
            case "POST", "limit":
                self.limiter = Limiter(Limit.model_validate(body))
            case "POST", "brain":
                self.brain.parallel = Manner.model_validate(body).parallel
            case "POST", "reset":
                self._reset()
            case _:
                return None
        return {"faults": len(self.faults), "replies": len(self.replies), "pace": self.pace.model_dump()}

    def take_faults(self, texts: Sequence[str], *, path: str) -> dict[Kind, Fault]:
        """Use up the faults of one request, at most one of a kind; one that gets no completion leaves the others alone."""
        taken: dict[Kind, Fault] = {}
        for kind in FIRST_KINDS + LATER_KINDS:
            fault = self.faults.take(texts, lambda fault, kind=kind: fault.kind == kind and fault.path == path)
            if fault:
                taken[kind] = fault
            if "status" in taken or "hang" in taken:
                break
        return taken

    def _reset(self) -> None:
        self.faults.clear()
        self.replies.clear()
        self.journal.clear()
        self.pace = self.start_pace
        self.brain.parallel = False
        self.limiter = Limiter()


def _listed(body: Any) -> list[Any]:
    return cast("list[Any]", body) if isinstance(body, list) else [body]
