"""A cluster is brought to what the catalogue says, and never further."""

from dataclasses import replace

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from infra.kafka import provision
from infra.kafka.connection import KafkaConnection
from infra.local.ports import free_port
from topics.catalogue import TICKETS, Catalogue
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
    steps = {step.topic: step for step in await provision.apply(connection, catalogue, replication_factor=1)}
    assert (steps[more].action, steps[fewer].action) == ("too_many_partitions", "add_partitions")
    left = await provision.plan(connection, catalogue)
    assert left == [replace(steps[more])]


@pytest.mark.parametrize("broker", ["apache-kafka"], indirect=True)
async def test_a_cluster_that_refuses_says_so(connection: KafkaConnection, prefix: str):
    with pytest.raises(ConfigError, match=r"cannot be created.*38"):
        await provision.apply(connection, Catalogue(prefix), replication_factor=3)


async def test_a_cluster_that_is_not_there_is_one_sentence():
    with pytest.raises(ConfigError, match="cannot be reached"):
        await provision.plan(KafkaConnection(f"127.0.0.1:{free_port()}"), Catalogue())
