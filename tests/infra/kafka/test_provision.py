"""A cluster is brought to what the catalogue says, and never further."""

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from infra.kafka import provision
from infra.kafka.connection import KafkaConnection
from infra.local.ports import free_port
from topics.catalogue import ARTICLES, DEAD_LETTERS, QUERIES, TICKETS, Catalogue
from topics.errors import ConfigError


async def test_what_is_missing_is_made_once(connection: KafkaConnection, prefix: str):
    catalogue = Catalogue(prefix)
    planned = await provision.plan(connection, catalogue)
    assert {step.topic for step in planned} == set(catalogue.all_names())
    assert {step.action for step in planned} == {"create"}
    assert await provision.apply(connection, catalogue, replication_factor=1) == planned
    assert await provision.plan(connection, catalogue) == []
    assert await provision.apply(connection, catalogue, replication_factor=1) == []


@pytest.mark.parametrize("broker", ["apache-kafka"], indirect=True)
async def test_partitions_are_added_and_never_taken(connection: KafkaConnection, prefix: str):
    catalogue = Catalogue(prefix)
    more, fewer = catalogue.name(TICKETS), catalogue.replay_name(TICKETS)
    admin = AIOKafkaAdminClient(bootstrap_servers=connection.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(more, 9, 1), NewTopic(fewer, 2, 1)])
    await admin.close()
    done = await provision.apply(connection, catalogue, replication_factor=1)
    assert ("add_partitions", fewer) in {(step.action, step.topic) for step in done}
    left = await provision.plan(connection, catalogue)
    assert [(step.action, step.topic) for step in left] == [("too_many_partitions", more)]
    assert left[0] in done


@pytest.mark.parametrize("broker", ["apache-kafka"], indirect=True)
async def test_a_cluster_that_refuses_says_so(connection: KafkaConnection, prefix: str):
    with pytest.raises(ConfigError, match=r"cannot be created.*38"):
        await provision.apply(connection, Catalogue(prefix), replication_factor=3)


async def test_a_cluster_that_is_not_there_is_one_sentence():
    with pytest.raises(ConfigError, match="cannot be reached"):
        await provision.plan(KafkaConnection(f"127.0.0.1:{free_port()}"), Catalogue())


async def described(connection: KafkaConnection, topic: str) -> dict[str, str]:
    admin = AIOKafkaAdminClient(bootstrap_servers=connection.bootstrap)
    await admin.start()
    (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    await admin.close()
    return {entry[0]: entry[1] for entry in answer.resources[0][4]}


@pytest.mark.parametrize("broker", ["apache-kafka"], indirect=True)
async def test_settings_are_raised_and_never_lowered_unless_somebody_allows_it(connection: KafkaConnection, prefix: str):
    catalogue = Catalogue(prefix)
    short, long, other = catalogue.name(TICKETS), catalogue.name(QUERIES), catalogue.name(ARTICLES)
    admin = AIOKafkaAdminClient(bootstrap_servers=connection.bootstrap)
    await admin.start()
    await admin.create_topics(
        [
            NewTopic(short, 6, 1, topic_configs={"retention.ms": "1000", "max.message.bytes": "5000000", "segment.ms": "60000"}),
            NewTopic(long, 6, 1, topic_configs={"retention.ms": "-1", "max.message.bytes": "1000"}),
            NewTopic(other, 6, 1, topic_configs={"cleanup.policy": "delete"}),
        ]
    )
    await admin.close()
    await provision.apply(connection, catalogue, replication_factor=1)
    left = {step.topic: step for step in await provision.plan(connection, catalogue)}
    assert {topic: step.action for topic, step in left.items()} == {long: "differs", other: "differs"}
    raised = await described(connection, short)
    assert (raised["retention.ms"], raised["segment.ms"]) == (str(TICKETS.retention_ms), "60000"), "what else is set stays"
    assert (await described(connection, long))["max.message.bytes"] == "1048588"
    for roomy in (catalogue.name(DEAD_LETTERS), catalogue.replay_name(TICKETS)):
        assert int((await described(connection, roomy))["max.message.bytes"]) > 5_000_000, "a dead letter is larger than its record"

    await provision.apply(connection, catalogue, replication_factor=1, allow_lowering=True)
    assert await provision.plan(connection, catalogue) == []
    assert (await described(connection, long))["retention.ms"] == str(QUERIES.retention_ms)
    assert (await described(connection, other))["cleanup.policy"] == "compact"
