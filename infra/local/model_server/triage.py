"""Triage of a ticket: intent by sentence embedding, priority and the need for a person by plain rules."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self

import numpy as np
import orjson
from numpy.typing import NDArray

from infra.local.data import datasets
from infra.local.model_server import schemas, words

FIELDS: Final = frozenset({"intent", "priority", "needs_person", "summary"})
PRIORITIES: Final = ("low", "normal", "high", "urgent")
OTHER: Final = frozenset({"other", "unknown", "none", "out_of_scope", "oos", "general"})
UNSURE_BELOW: Final = 0.25
SUMMARY_CHARS: Final = 120

_URGENT: Final = re.compile(
    r"\b(stolen|stole|fraud\w*|hack\w*|compromised|urgent\w*|emergency|asap|immediately|unauthori[sz]ed|scam\w*)\b",
    re.IGNORECASE,
)
_HIGH: Final = re.compile(
    r"\b(lost|blocked|swallowed|declined|rejected|failed|twice|wrong|missing|locked|can'?t access|not working|doesn'?t work"
    r"|complain\w*|unacceptable|refund|disappeared|still (?:pending|waiting|haven'?t|have not))\b",
    re.IGNORECASE,
)
_QUESTION: Final = re.compile(
    r"^\s*(how|what|where|when|which|can i|could i|do you|is it|is there|are there|why do you)\b", re.IGNORECASE
)
_PERSON: Final = re.compile(
    r"\b(human|real person|speak (?:to|with)|talk (?:to|with)|call me|manager|lawyer|legal|complaint|agent)\b", re.IGNORECASE
)
_LABEL: Final = re.compile(r"^\s*(?:ticket|subject|title|body|text|message|customer)\s*:\s*", re.IGNORECASE | re.MULTILINE)
_TAG: Final = re.compile(r"</?[a-z_]+>")

Vector = NDArray[np.float32]


class Encoder(Protocol):
    """Texts to unit vectors."""

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """One vector a text, in their order."""
        ...


@dataclass(frozen=True, slots=True)
class IntentClassifier:
    """Softmax regression over sentence vectors. `weights` is (384, len(labels))."""

    labels: tuple[str, ...]
    weights: Vector
    bias: Vector

    @classmethod
    def load(cls) -> Self:
        """The weights that bench/train_triage.py made from BANKING77."""
        with np.load(datasets.triage_weights_path()) as file:
            labels = tuple(str(label) for label in file["labels"])
            return cls(labels, file["weights"].astype(np.float32), file["bias"].astype(np.float32))

    def rank(self, vector: Vector, among: Sequence[str]) -> tuple[str, float]:
        """The likeliest of some labels, and its share of all labels' probability."""
        scores = vector @ self.weights + self.bias
        chances = np.exp(scores - scores.max())
        chances /= chances.sum()
        best = max(among, key=lambda label: (float(chances[self.labels.index(label)]), label))
        return best, float(chances[self.labels.index(best)])


def is_triage(schema: Mapping[str, Any]) -> bool:
    """Whether a schema asks for what triage finds."""
    properties = schemas.resolve(schema, schema).get("properties", {})
    return properties.keys() >= FIELDS


class Triage:
    """Fills a triage schema for a ticket."""

    def __init__(self, encoder: Encoder, classifier: IntentClassifier) -> None:
        self._encoder = encoder
        self._classifier = classifier

    async def fill(self, schema: Mapping[str, Any], text: str, examples: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
        """An instance of the schema for the ticket in `text`; fields beyond the four are minimal.

        Args:
            examples: Texts of other tickets, each with the JSON that it was answered.
        """
        ticket = ticket_text(text)
        intents = _choices(schema, "intent") or self._classifier.labels
        intent, sure = await self._intent(ticket, intents)
        priority = priority_of(ticket)
        habit = {
            "intent": intent,
            "priority": nearest_priority(priority, _choices(schema, "priority") or PRIORITIES),
            "needs_person": priority == "urgent" or not sure or bool(_PERSON.search(ticket)),
            "summary": words.first_sentence(ticket, max_chars=SUMMARY_CHARS),
        }
        return schemas.instance(schema, text=ticket) | habit | await self._as_shown(ticket, intent, intents, examples)

    async def _as_shown(
        self, ticket: str, intent: str, intents: Sequence[str], examples: Sequence[tuple[str, str]]
    ) -> dict[str, Any]:
        """What the nearest of the examples says that we would take for a ticket of the same intent; nothing without one."""
        answers = {ticket_text(text): answer for text, answer in examples}
        alike = [text for text in answers if (await self._intent(text, intents))[0] == intent]
        if not alike:
            return {}
        vector, *others = await self._encoder.embed([ticket, *alike])
        nearest = max(range(len(alike)), key=lambda index: float(others[index] @ vector))
        answer = orjson.loads(answers[alike[nearest]])
        return {name: answer[name] for name in FIELDS - {"summary"}}

    async def _intent(self, ticket: str, intents: Sequence[str]) -> tuple[str, bool]:
        named = [intent for intent in intents if intent.lower() not in OTHER]
        if set(named) <= set(self._classifier.labels) and named:
            (vector,) = await self._encoder.embed([ticket])
            intent, chance = self._classifier.rank(vector, named)
        else:
            intent, chance = await self._nearest_label(ticket, named or intents)
        sure = chance >= UNSURE_BELOW
        other = next((intent for intent in intents if intent.lower() in OTHER), None)
        return (intent, True) if sure else (other or intent, False)

    async def _nearest_label(self, ticket: str, labels: Sequence[str]) -> tuple[str, float]:
        """The label whose words are nearest to the ticket, and the cosine between them."""
        spoken = [re.sub(r"[_\W]+", " ", label).strip() or label for label in labels]
        vector, *others = await self._encoder.embed([ticket, *spoken])
        scores = [float(other @ vector) for other in others]
        best = max(range(len(labels)), key=lambda index: (scores[index], labels[index]))
        return labels[best], scores[best]


def ticket_text(text: str) -> str:
    """The ticket without the labels and tags a prompt puts around it."""
    return _LABEL.sub("", _TAG.sub("", text)).strip()


def priority_of(ticket: str) -> str:
    """Urgent for theft and the word itself, high for trouble, low for a plain question, else normal."""
    if _URGENT.search(ticket):
        return "urgent"
    if _HIGH.search(ticket):
        return "high"
    return "low" if _QUESTION.search(ticket) else "normal"


def nearest_priority(priority: str, allowed: Sequence[str]) -> str:
    """The priority itself if it is allowed, else the nearest of ours that is, else the middle one."""
    rank = PRIORITIES.index(priority)
    ours = [name for name in allowed if name in PRIORITIES]
    if not ours:
        return allowed[len(allowed) // 2]
    return min(ours, key=lambda name: abs(PRIORITIES.index(name) - rank))


def _choices(schema: Mapping[str, Any], name: str) -> tuple[str, ...]:
    properties = schemas.resolve(schema, schema)["properties"]
    return tuple(str(value) for value in schemas.resolve(properties[name], schema).get("enum", ()))
