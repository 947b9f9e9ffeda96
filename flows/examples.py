"""What triage shows a model beside a ticket: the nearest examples of its own tenant, as messages."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from anyio import create_task_group, fail_after
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from flows.intents import BANKING77
from flows.ports import Embedder, ExampleStore
from flows.ticket_frame import TICKET, bare
from flows.tokens import clip
from topics.errors import HaltError, SluiceError, TimedOutError
from topics.events import TicketOpened
from topics.example import Example

SHOWN: Final = 4
SEARCHED_TOKENS: Final = 256  # an encoder reads no more
EXAMPLE_TOKENS: Final = 400  # four of them are paid for with every ticket
WAIT_S: Final = 15.0

_Tickets = list[tuple[str, TicketOpened]]


@dataclass(frozen=True, slots=True)
class Shown:
    """What a ticket's prompt shows, nearest first. `version` is that of all of its tenant's examples, just before the search."""

    examples: tuple[Example, ...]
    version: str

    @property
    def messages(self) -> list[BaseMessage]:
        """Each as a ticket, followed by what the model should have said of it."""
        return [message for example in self.examples for message in _pair(example)]


class NearestExamples:
    """Finds examples for the tickets of a batch.

    Args:
        on_loss: Told by tenant why its tickets, or the rest of them, go without examples.
        intents: The labels that a model may pick now; an example with another one is not shown.
        wait_s: Seconds that a batch waits at most.
    """

    def __init__(
        self,
        store: ExampleStore,
        embedder: Embedder,
        *,
        on_loss: Callable[[str, SluiceError], None],
        intents: Sequence[str] = BANKING77,
        wait_s: float = WAIT_S,
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._on_loss = on_loss
        self._intents = frozenset(intents)
        self._wait_s = wait_s

    async def of(self, tickets: Sequence[tuple[str, TicketOpened]]) -> Mapping[str, Shown]:
        """By record key (`tenant/ticket`), what to show beside a ticket; one that has nothing near of its own is left out.

        Texts are embedded by one call for each tenant that has examples, since they count against its budget. Examples help
        and are not needed: a store or a model that fails, or takes longer than `wait_s`, is no error, and no other tenant's loss.

        Raises:
            HaltError: A setting is wrong; a person must mend it.
            ValueError: A ticket has no tenant. Nothing was asked.
        """
        by_tenant: dict[str, _Tickets] = {}
        for key, opened in tickets:
            by_tenant.setdefault(_tenant(key), []).append((key, opened))
        found: dict[str, Shown] = {}
        halts: list[HaltError] = []
        async with create_task_group() as group:
            for tenant, own in by_tenant.items():
                group.start_soon(self._look, tenant, own, found, halts)
        if halts:
            raise halts[0]
        return found

    async def _look(self, tenant: str, tickets: _Tickets, found: dict[str, Shown], halts: list[HaltError]) -> None:
        try:
            with fail_after(self._wait_s):
                await self._find(tenant, tickets, found)
        except HaltError as error:
            halts.append(error)
        except SluiceError as error:
            self._on_loss(tenant, error)
        except TimeoutError:
            self._on_loss(tenant, TimedOutError(f"no examples within {self._wait_s:g} s"))

    async def _find(self, tenant: str, tickets: _Tickets, found: dict[str, Shown]) -> None:
        """Fill `found` one by one, so that what was found before a failure is shown."""
        version = await self._store.version(tenant)
        asking = [(key, opened, text) for key, opened in tickets if (text := searched(opened.title, opened.body))]
        if not version or not asking:
            return
        vectors = await self._embedder.embed([text for *_, text in asking], tenant=tenant)
        for (key, opened, _), vector in zip(asking, vectors, strict=True):
            near = await self._store.nearest(tenant, vector, SHOWN + 1)  # one of them may be the ticket itself
            fit = tuple(one for one in near if self._fits(one, tenant, opened))[:SHOWN]
            if fit:
                found[key] = Shown(fit, version)

    def _fits(self, example: Example, tenant: str, opened: TicketOpened) -> bool:
        """Whether it may be shown: its tenant is checked here too, and a ticket never sees its own answer."""
        return example.tenant == tenant and example.example_id != opened.ticket_id and example.intent in self._intents


def searched(title: str, body: str) -> str:
    """The part of a ticket or an example that stands for it in a search; empty when it says nothing."""
    return clip(f"{title}\n{body}".strip(), SEARCHED_TOKENS).strip()


def _pair(example: Example) -> tuple[BaseMessage, BaseMessage]:
    found = {
        "intent": example.intent,
        "priority": example.priority,
        "needs_person": example.needs_person,
        "summary": bare(example.summary, EXAMPLE_TOKENS),
    }
    ticket = TICKET.format(title=bare(example.title, EXAMPLE_TOKENS), body=bare(example.body, EXAMPLE_TOKENS))
    return HumanMessage(ticket), AIMessage(json.dumps(found, ensure_ascii=False))


def _tenant(key: str) -> str:
    tenant = key.partition("/")[0]
    if not tenant.strip():
        raise ValueError("a ticket needs a tenant")
    return tenant
