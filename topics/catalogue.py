"""The one place that spells topics: names, keys, retention, payloads, and who may write."""

from dataclasses import dataclass, field
from typing import Final, Literal

from topics import events
from topics.events import Payload

DAY_MS: Final = 86_400_000
REPLAY_SUFFIX: Final = ".replay"


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """What a topic carries and how it is kept.

    `key_field` is the payload field that follows the tenant in the record key (`tenant/value`); None where the key is the
    original record's.
    """

    name: str
    direction: Literal["in", "out", "ops"]
    description: str
    key_field: str | None
    payloads: tuple[type[Payload], ...]
    writers: tuple[str, ...]
    tombstone: type[Payload] | None = None
    partitions: int = 6
    retention_ms: int = 7 * DAY_MS
    cleanup: Literal["delete", "compact"] = "delete"

    def key_for(self, tenant: str, payload: Payload) -> str:
        """The record key: `tenant/` and the key field."""
        if self.key_field is None:
            raise ValueError(f"{self.name} has no key of its own")
        return f"{tenant}/{getattr(payload, self.key_field)}"


TICKETS: Final = TopicSpec(
    name="tickets",
    direction="in",
    description="Support tickets as upstream knows them. A tombstone erases a ticket.",
    key_field="ticket_id",
    payloads=(events.TicketOpened, events.TicketCommented, events.TicketClosed),
    tombstone=events.TicketErased,
    writers=("upstream",),
)
ARTICLES: Final = TopicSpec(
    name="articles",
    direction="in",
    description="Help articles. A tombstone retires an article.",
    key_field="article_id",
    payloads=(events.ArticlePublished,),
    tombstone=events.ArticleRetired,
    writers=("upstream",),
    cleanup="compact",
)
QUERIES: Final = TopicSpec(
    name="queries",
    direction="in",
    description="Questions and orders for the agent, one thread after another.",
    key_field="thread_id",
    payloads=(events.QueryAsked, events.QueryCancelled, events.QueryContinued),
    writers=("upstream",),
)
DECISIONS: Final = TopicSpec(
    name="approvals.decisions",
    direction="in",
    description="What people decided about waiting tool calls.",
    key_field="thread_id",
    payloads=(events.ApprovalDecided,),
    writers=("approver",),
    retention_ms=30 * DAY_MS,
)
TIMERS: Final = TopicSpec(
    name="approvals.timers",
    direction="in",
    description="Moments of approvals that have come: reminders, escalations, ends of time. Only Sluice writes and reads it.",
    key_field="thread_id",
    payloads=(events.ApprovalDue,),
    writers=("approvals",),
    retention_ms=30 * DAY_MS,
)
FEEDBACK: Final = TopicSpec(
    name="feedback",
    direction="in",
    description="Thumbs and notes on answers.",
    key_field="thread_id",
    payloads=(events.FeedbackGiven,),
    writers=("upstream",),
)
TRIAGE: Final = TopicSpec(
    name="triage",
    direction="out",
    description="What triage found, a ticket each.",
    key_field="ticket_id",
    payloads=(events.TicketTriaged,),
    writers=("ingestion",),
)
ANSWERS: Final = TopicSpec(
    name="answers",
    direction="out",
    description="Streamed text, and the final answer of each query.",
    key_field="thread_id",
    payloads=(events.AnswerDelta, events.AnswerRestarted, events.AnswerCompleted, events.AnswerFailed, events.AnswerHeld),
    writers=("query", "approvals"),
)
REQUESTS: Final = TopicSpec(
    name="approvals.requests",
    direction="out",
    description="Tool calls that wait for a person.",
    key_field="thread_id",
    payloads=(
        events.ApprovalRequested,
        events.ApprovalWithdrawn,
        events.ApprovalAmended,
        events.ApprovalReminded,
        events.ApprovalEscalated,
    ),
    writers=("query", "approvals"),
    retention_ms=30 * DAY_MS,
)
OUTCOMES: Final = TopicSpec(
    name="approvals.outcomes",
    direction="out",
    description="What became of every decision, and what ran.",
    key_field="thread_id",
    payloads=(events.ApprovalAccepted, events.ApprovalRefused, events.ApprovalExpired, events.ApprovalExecuted),
    writers=("approvals", "query"),
    retention_ms=30 * DAY_MS,
)
DEAD_LETTERS: Final = TopicSpec(
    name="dead-letters",
    direction="ops",
    description="Records that could not be done: original key, value and headers, plus why.",
    key_field=None,
    payloads=(),
    writers=("ingestion", "query", "approvals", "feedback"),
    retention_ms=30 * DAY_MS,
)
RESOLUTIONS: Final = TopicSpec(
    name="dead-letters.resolutions",
    direction="ops",
    description="What operators did with dead letters.",
    key_field="dead_letter_id",
    payloads=(events.DeadLetterResolved,),
    writers=("operator",),
    cleanup="compact",
)

SPECS: Final = (
    TICKETS,
    ARTICLES,
    QUERIES,
    DECISIONS,
    TIMERS,
    FEEDBACK,
    TRIAGE,
    ANSWERS,
    REQUESTS,
    OUTCOMES,
    DEAD_LETTERS,
    RESOLUTIONS,
)


def spec_for(payload: type[Payload]) -> TopicSpec:
    """The topic that carries a payload type."""
    for spec in SPECS:
        if payload in spec.payloads:
            return spec
    raise LookupError(f"no topic carries {payload.TYPE}")


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The topics under one prefix, such as `staging.`."""

    prefix: str = ""
    _by_name: dict[str, TopicSpec] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index the specs by their full name, replay topics included."""
        names = {self.name(spec): spec for spec in SPECS}
        names |= {self.replay_name(spec): spec for spec in SPECS if spec.direction == "in"}
        object.__setattr__(self, "_by_name", names)

    def name(self, spec: TopicSpec) -> str:
        """The topic's name on the cluster."""
        return self.prefix + spec.name

    def replay_name(self, spec: TopicSpec) -> str:
        """Where dead letters of an input come back; only our own group reads it."""
        return self.prefix + spec.name + REPLAY_SUFFIX

    def spec(self, topic: str) -> TopicSpec:
        """The spec of a topic on the cluster, or of its replay topic.

        Raises:
            LookupError: The topic is not ours.
        """
        try:
            return self._by_name[topic]
        except KeyError:
            raise LookupError(f"topic {topic!r} is not in the catalogue") from None

    def is_replay(self, topic: str) -> bool:
        """Whether a topic carries dead letters on their way back."""
        return topic.endswith(REPLAY_SUFFIX) and topic in self._by_name

    def all_names(self) -> dict[str, TopicSpec]:
        """Every topic that must exist, by its name on the cluster."""
        return dict(self._by_name)
