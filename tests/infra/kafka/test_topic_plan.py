"""What differs between a cluster and the catalogue, and what may be done about it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.kafka.topic_plan import FoundTopic, steps
from topics.catalogue import ARTICLES, DEAD_LETTERS, TICKETS, Catalogue

CATALOGUE = Catalogue()
DAY_MS = 86_400_000


def as_made(replicas: int = 1) -> dict[str, FoundTopic]:
    made = steps({}, CATALOGUE, replicas=replicas)
    return {step.topic: FoundTopic(step.partitions, replicas, step.configs) for step in made}


def changed(topic: str, **configs: str) -> dict[str, FoundTopic]:
    made = as_made()
    named = {name.replace("_", "."): value for name, value in configs.items()}
    return made | {topic: FoundTopic(made[topic].partitions, 1, {**made[topic].configs, **named})}


def test_what_was_made_needs_no_more():
    assert steps(as_made(), CATALOGUE) == []
    assert steps(as_made(3), CATALOGUE, replicas=3) == []


def test_three_copies_mean_that_two_acknowledge():
    assert all(step.configs["min.insync.replicas"] == "2" for step in steps({}, CATALOGUE, replicas=3))
    assert all("min.insync.replicas" not in step.configs for step in steps({}, CATALOGUE, replicas=1))


@pytest.mark.parametrize(
    ("topic", "found", "action"),
    [
        (TICKETS.name, {"retention_ms": "1"}, "change"),
        (TICKETS.name, {"retention_ms": str(8 * DAY_MS)}, "differs"),
        (TICKETS.name, {"retention_ms": "-1"}, "differs"),
        (TICKETS.name, {"cleanup_policy": "compact"}, "differs"),
        (ARTICLES.name, {"cleanup_policy": "delete"}, "differs"),
        (TICKETS.name, {"max_message_bytes": "1000"}, "change"),
    ],
)
def test_what_could_cost_records_is_left_as_it_is_until_somebody_allows_it(topic: str, found: dict[str, str], action: str):
    (step,) = steps(changed(topic, **found), CATALOGUE)
    assert (step.topic, step.action) == (topic, action)
    (allowed,) = steps(changed(topic, **found), CATALOGUE, allow_lowering=True)
    assert allowed.action == "change"


def test_dead_letters_have_room_for_the_largest_input_whoever_made_it_so_large():
    found = steps(changed(TICKETS.name, max_message_bytes="5000000"), CATALOGUE)
    assert {step.action for step in found} == {"change"}
    assert {step.topic for step in found} == {
        DEAD_LETTERS.name,
        *(name for name in CATALOGUE.all_names() if CATALOGUE.is_replay(name)),
    }
    assert all(int(step.configs["max.message.bytes"]) > 5_000_000 for step in found)


def test_a_broker_that_tells_no_settings_has_no_differences():
    bare = {name: FoundTopic(one.partitions) for name, one in as_made().items()}
    assert steps(bare, CATALOGUE) == []


@given(retention=st.integers(-1, 10**12), size=st.integers(1, 10**8), allow=st.booleans())
def test_two_runs_are_enough(retention: int, size: int, allow: bool):
    existing = changed(TICKETS.name, retention_ms=str(retention), max_message_bytes=str(size))
    for step in steps(existing, CATALOGUE, allow_lowering=allow):
        if step.action == "change":
            one = existing[step.topic]
            existing[step.topic] = FoundTopic(one.partitions, one.replicas, {**one.configs, **step.configs})
    assert [step for step in steps(existing, CATALOGUE, allow_lowering=allow) if step.action == "change"] == []
