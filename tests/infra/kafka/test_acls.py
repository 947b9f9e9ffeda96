"""Who may do what on the cluster: by the catalogue, and by a broker that holds people to it."""

import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import TopicAuthorizationFailedError

from infra.kafka import acls, provision
from infra.kafka.connection import KafkaConnection
from infra.kafka.consumer import GroupConsumer
from infra.local.apache_kafka import apache_kafka_missing, build_apache_kafka, tool_command
from infra.local.ports import HOST, free_port
from topics.catalogue import DECISIONS, OUTCOMES, SPECS, Catalogue
from topics.errors import ConfigError
from workers.app import topology
from workers.readers import READERS

CATALOGUE = Catalogue("acl.")
ENTRIES = acls.acls(CATALOGUE, readers=READERS, group_prefix="acl")
PASSWORD = "secret"


def writers_of(topic: str) -> set[str]:
    return {one.role for one in ENTRIES if one.name == topic and "Write" in one.operations}


def test_no_worker_may_write_a_decision():
    """Nobody who carries out a decision can make one up, on the topic or on its replay."""
    assert writers_of(CATALOGUE.name(DECISIONS)) == {"approver"}
    assert writers_of(CATALOGUE.replay_name(DECISIONS)) == {"operator"}
    assert not any(
        "Write" in one.operations for one in ENTRIES if one.role in READERS and one.name.startswith("acl.approvals.decisions")
    )


def test_everybody_writes_what_the_catalogue_says_and_workers_read_only_their_inputs():
    for spec in SPECS:
        assert writers_of(CATALOGUE.name(spec)) == set(spec.writers)
    for worker, inputs in READERS.items():
        read = {one.name for one in ENTRIES if one.role == worker and "Read" in one.operations and one.resource == "topic"}
        own = {CATALOGUE.name(OUTCOMES)} if worker in OUTCOMES.writers else set()  # their chain is learned from there
        assert read == own | {name for spec in inputs for name in (CATALOGUE.name(spec), CATALOGUE.replay_name(spec))}
        groups = {one.name for one in ENTRIES if one.role == worker and one.resource == "group"}
        assert groups == {f"acl.{worker}"}


def test_the_readers_are_those_of_the_topology():
    part = SimpleNamespace(batch_size=1, here=None)
    anything: Any = type("Anything", (), {"__getattr__": lambda *_: part, "tracing": None})()
    assert {name: tuple(route.spec for route in routes) for name, routes in topology(anything).items()} == READERS


def test_a_command_is_one_line_that_a_shell_takes_apart_again():
    one = acls.Acl("query", "group", "my group", ("Read",), "prefixed")
    assert acls.command(one, bootstrap="k:1", principal="User:CN=query,O=x") == (
        "kafka-acls --bootstrap-server k:1 --add --allow-principal User:CN=query,O=x --operation Read"
        " --group 'my group' --resource-pattern-type prefixed"
    )


# On a broker that denies what nobody allowed


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncGenerator[tuple[str, str]]:
    """Where its administrator comes in, and where roles do, each with its name and password."""
    if missing := apache_kafka_missing():
        pytest.skip(missing)
    port = free_port()
    users = " ".join(f'user_sluice-{role}="{PASSWORD}"' for role in ("approvals", "approver"))
    server, address = build_apache_kafka(
        data_dir=tmp_path,
        second_listener=(port, port),
        overrides={
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECOND:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.second.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f"{users};",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        },
    )
    await server.start()
    try:
        yield address, f"{HOST}:{port}"
    finally:
        await server.kill()


def run_tool(entry: acls.Acl, *, bootstrap: str) -> None:
    """Kafka's own tool, with the arguments that we print."""
    given = acls.arguments(entry, bootstrap=bootstrap, principal=f"User:sluice-{entry.role}")
    told = subprocess.run(
        tool_command("org.apache.kafka.tools.AclCommand", *given), capture_output=True, text=True, timeout=60, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "Adding ACLs" in told.stdout


async def test_a_broker_holds_workers_to_their_rights(guarded: tuple[str, str]):
    """The worker that carries out decisions reads them, answers them, and cannot write one."""
    admin, door = guarded
    await provision.apply(KafkaConnection(admin), CATALOGUE, replication_factor=1)
    used = {CATALOGUE.name(DECISIONS), CATALOGUE.replay_name(DECISIONS), CATALOGUE.name(OUTCOMES), "acl.approvals"}
    approvals = KafkaConnection(door, mechanism="PLAIN", username="sluice-approvals", password=PASSWORD)
    with pytest.raises(ConfigError, match=r"topics are missing|cannot be reached"):
        await joined(approvals)
    for entry in ENTRIES:
        if entry.role in {"approvals", "approver"} and entry.name in used:
            await anyio.to_thread.run_sync(lambda entry=entry: run_tool(entry, bootstrap=admin))

    await joined(approvals)
    async with AIOKafkaProducer(**approvals.client_options(), enable_idempotence=True) as producer:
        await producer.send_and_wait(CATALOGUE.name(OUTCOMES), b"x", key=b"k")
        with pytest.raises(TopicAuthorizationFailedError):
            await producer.send_and_wait(CATALOGUE.name(DECISIONS), b"x", key=b"k")
    approver = KafkaConnection(door, mechanism="PLAIN", username="sluice-approver", password=PASSWORD)
    async with AIOKafkaProducer(**approver.client_options(), enable_idempotence=True) as producer:
        await producer.send_and_wait(CATALOGUE.name(DECISIONS), b"x", key=b"k")


async def joined(connection: KafkaConnection) -> None:
    """Join as the worker does, and commit."""
    topics = [CATALOGUE.name(DECISIONS), CATALOGUE.replay_name(DECISIONS)]
    consumer = GroupConsumer(connection, group="acl.approvals", topics=topics)
    await consumer.start(Deaf())
    try:
        with anyio.fail_after(30):
            while not consumer.reached():
                await consumer.poll(set())
    finally:
        await consumer.stop()


class Deaf:
    """A listener without interest."""

    async def on_revoked(self, partitions: Any) -> None: ...

    async def on_assigned(self, partitions: Any) -> None: ...
