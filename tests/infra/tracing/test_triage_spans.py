"""The spans of a triage say which prompt was used."""

import pytest

from flows.triage import build_triage, prompt_version_of
from tests.flows.test_examples import Desk, example, ticket
from tests.flows.test_triage import INTENTS
from tests.infra.tracing.spans import attributes, catching, work_of
from topics.events import TicketOpened


@pytest.mark.parametrize("taught", [False, True])
async def test_a_triages_spans_carry_the_version_of_its_prompt_and_of_its_examples(taught: bool) -> None:
    desk, version = Desk(), prompt_version_of(INTENTS)
    if taught:
        await desk.teach(example("e1", "card"))
        version += f"+{await desk.store.version('acme')}"
    async with catching() as (tracing, caught):
        work = work_of(TicketOpened(ticket_id="1", body="card"))
        with tracing.records("sluice.ingestion").handling([work]):
            triage = build_triage(desk.model, INTENTS, examples=desk.nearest)
            _ = [one async for one in triage.triage([ticket("1", "card")], {"callbacks": [tracing.callbacks]})]
    assert {attributes(caught.one(name))["sluice.prompt_version"] for name in ("chain triage", "model")} == {version}
    assert "my card" not in caught.texts()
