"""The catalogue: one place for names, keys and who carries what."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.topics.payloads import MODELS
from topics import events
from topics.catalogue import DEAD_LETTERS, REPLAY_SUFFIX, RESOLUTIONS, SPECS, Catalogue, spec_for
from topics.events import Payload


def every_payload() -> set[type[Payload]]:
    return {one for one in vars(events).values() if isinstance(one, type) and issubclass(one, Payload) and one is not Payload}


def test_every_payload_is_carried_by_exactly_one_topic():
    carriers = Counter(payload for spec in SPECS for payload in (*spec.payloads, *filter(None, [spec.tombstone])))
    assert carriers == dict.fromkeys(every_payload(), 1)
    assert all(payload in spec_for(payload).payloads for payload in MODELS)


def test_what_no_topic_carries_cannot_be_written():
    with pytest.raises(LookupError):
        spec_for(events.TicketErased)


def test_names_and_types_are_unique():
    names = Catalogue().all_names()
    assert len(names) == len(SPECS) + sum(spec.direction == "in" for spec in SPECS)
    assert len({payload.TYPE for payload in every_payload()}) == len(every_payload())


@given(st.text("abc._-", max_size=9))
def test_names_stay_unique_and_legal_under_any_prefix(prefix: str):
    catalogue = Catalogue(prefix)
    names = catalogue.all_names()
    assert len(names) == len(Catalogue().all_names())
    assert all(name.startswith(prefix) and len(name) <= 249 for name in names)
    assert all(catalogue.spec(name) is spec for name, spec in names.items())


def test_only_inputs_have_a_way_back():
    catalogue = Catalogue("p.")
    back = {name: spec for name, spec in catalogue.all_names().items() if catalogue.is_replay(name)}
    assert back == {f"p.{spec.name}{REPLAY_SUFFIX}": spec for spec in SPECS if spec.direction == "in"}
    assert not catalogue.is_replay("tickets.replay")
    assert not catalogue.is_replay("p.answers.replay")
    with pytest.raises(LookupError):
        catalogue.spec("p.answers.replay")


def test_keys_are_the_tenant_and_a_field_that_every_payload_of_the_topic_has():
    for spec in SPECS:
        if spec.key_field is not None:
            assert all(spec.key_field in payload.model_fields for payload in (*spec.payloads, *filter(None, [spec.tombstone])))
    assert spec_for(events.QueryAsked).key_for("acme", events.QueryAsked(thread_id="a/b", text="x")) == "acme/a/b"


def test_a_dead_letter_keeps_the_key_of_its_record():
    with pytest.raises(ValueError, match="no key of its own"):
        DEAD_LETTERS.key_for("acme", events.QueryAsked(thread_id="t", text="x"))


def test_answers_outlive_no_question_that_could_still_be_replayed():
    """A dead letter may go back for as long as it is kept; its resolutions are never dropped."""
    assert RESOLUTIONS.cleanup == "compact"
    assert all(DEAD_LETTERS.retention_ms >= spec.retention_ms for spec in SPECS)
