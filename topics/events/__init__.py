"""Every payload, in the past tense. `TYPE` and `VERSION` name it on the wire; unknown extra fields are ignored.

`identity()` gives an event an id of its own, whoever publishes it and however often; without one the id comes from the
causing event and the ordinal of the yield.
"""

from topics.events.answers import (
    AnswerCompleted,
    AnswerDelta,
    AnswerFailed,
    AnswerHeld,
    AnswerRestarted,
    Citation,
    FeedbackGiven,
    QueryAsked,
    QueryCancelled,
)
from topics.events.approvals import (
    ApprovalAccepted,
    ApprovalAmended,
    ApprovalDecided,
    ApprovalDue,
    ApprovalEscalated,
    ApprovalExecuted,
    ApprovalExpired,
    ApprovalRefused,
    ApprovalReminded,
    ApprovalRequested,
    ApprovalWithdrawn,
    AtExpiry,
    ChainLink,
    Decision,
    Escalation,
    OnNewMessage,
    PastDecision,
    RefusalCode,
    Standing,
    Terms,
    TimerStep,
    Verdict,
)
from topics.events.articles import ArticlePublished, ArticleRetired
from topics.events.dead_letters import DeadLetterResolved
from topics.events.payload import Instant, Payload
from topics.events.tickets import TicketClosed, TicketCommented, TicketErased, TicketOpened, TicketTriaged

__all__ = [
    "AnswerCompleted",
    "AnswerDelta",
    "AnswerFailed",
    "AnswerHeld",
    "AnswerRestarted",
    "ApprovalAccepted",
    "ApprovalAmended",
    "ApprovalDecided",
    "ApprovalDue",
    "ApprovalEscalated",
    "ApprovalExecuted",
    "ApprovalExpired",
    "ApprovalRefused",
    "ApprovalReminded",
    "ApprovalRequested",
    "ApprovalWithdrawn",
    "ArticlePublished",
    "ArticleRetired",
    "AtExpiry",
    "ChainLink",
    "Citation",
    "DeadLetterResolved",
    "Decision",
    "Escalation",
    "FeedbackGiven",
    "Instant",
    "OnNewMessage",
    "PastDecision",
    "Payload",
    "QueryAsked",
    "QueryCancelled",
    "RefusalCode",
    "Standing",
    "Terms",
    "TicketClosed",
    "TicketCommented",
    "TicketErased",
    "TicketOpened",
    "TicketTriaged",
    "TimerStep",
    "Verdict",
]
