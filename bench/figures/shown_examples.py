"""Examples of triage that are nearly the same in every tenant, and those that a model is shown beside a tenant's tickets."""

from typing import Final

from bench.figures.marks import PUBLISHING, Tally, mark_of
from flows.examples import NearestExamples, searched
from infra.local.data import datasets
from infra.settings import Settings
from topics.errors import SluiceError
from topics.events import TicketOpened
from topics.example import Example
from workers.parts import build_parts

EXAMPLES: Final = 24
ASKED: Final = 8


async def plant(settings: Settings) -> None:
    """Give every tenant the same examples under the same ids, each with its own mark."""
    texts = datasets.tickets()[:EXAMPLES]
    async with build_parts(settings) as parts:
        for tenant in PUBLISHING:
            examples = [
                Example(
                    tenant=tenant,
                    example_id=one.ticket_id,
                    title="",
                    body=f"{one.text} {mark_of(tenant)}",
                    intent=one.intent,
                    priority="normal",
                    needs_person=False,
                    summary=mark_of(tenant),
                )
                for one in texts
            ]
            vectors = await parts.embedder.embed([searched(one.title, one.body) for one in examples], tenant=tenant)
            await parts.examples.add(tenant, examples, vectors)


async def look_at_examples(tally: Tally, settings: Settings) -> None:
    """What a model reads beside tickets that all tenants send at once, under the same ids."""
    tickets = [
        (f"{tenant}/{one.ticket_id}", TicketOpened(ticket_id=one.ticket_id, body=one.text))
        for one in datasets.tickets()[EXAMPLES : EXAMPLES + ASKED]
        for tenant in PUBLISHING
    ]
    async with build_parts(settings) as parts:
        shown = await NearestExamples(parts.examples, parts.embedder, on_loss=_fail).of(tickets)
    for key, found in shown.items():
        for message in found.messages:
            tally.look("examples", key.partition("/")[0], message.text)


def _fail(_tenant: str, error: SluiceError) -> None:
    """An audit of what was not found would be no audit."""
    raise error
