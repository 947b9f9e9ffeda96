"""Clients that share no code with us, told nothing but the README and the AsyncAPI document."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from infra.kafka.reading import scan
from infra.local.apache_kafka import apache_kafka_missing, fetch, tool_command
from tests.stories.contract import Contract, contract_of
from tests.stories.servers import KAFKA, Realm
from tests.stories.world import OUTPUTS
from topics.catalogue import QUERIES
from topics.records import RawRecord

pytestmark = [pytest.mark.story, pytest.mark.timeout(180)]

needs_kcat = pytest.mark.skipif(shutil.which("kcat") is None, reason="no `kcat` is on the PATH (Debian package kcat)")
needs_java = pytest.mark.skipif(bool(missing := apache_kafka_missing()), reason=missing or "")

Row = dict[str, Any]


def _run(command: Sequence[str], text: str = "", **environment: str) -> str:
    """Run a client to its end."""
    return subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=90, check=True, env=environment or None
    ).stdout


async def _asyncapi(realm: Realm, tmp_path: Path) -> Row:
    """The document as the command prints it."""
    command = (sys.executable, "-m", "workers", "asyncapi", "--out", str(tmp_path / "asyncapi.json"))
    folder = {"SLUICE_DATA_DIR": str(realm.data_dir), "PATH": "/usr/bin:/bin", "SLUICE_TOPIC_PREFIX": realm.settings.topic_prefix}
    await anyio.to_thread.run_sync(lambda: _run(command, **folder))
    return json.loads((tmp_path / "asyncapi.json").read_bytes())


def _address_of(document: Row, event_type: str) -> str:
    return next(channel["address"] for channel in document["channels"].values() if event_type in channel["messages"])


def _question(document: Row, tenant: str) -> tuple[str, dict[str, str], Row]:
    """Topic, headers and body of a question, each checked against the document first."""
    message = document["components"]["messages"]["query.asked"]
    headers = {"ce_id": f"{tenant}-q", "ce_type": "query.asked", "ce_source": "my-shop", "ce_tenant": tenant}
    assert set(message["headers"]["required"]) <= headers.keys() <= message["headers"]["properties"].keys()
    body = {"thread_id": "chat-1", "text": "Do you ship to the moon?"}
    schema = document["components"]["schemas"][message["payload"]["$ref"].rpartition("/")[2]]
    assert set(schema["required"]) <= body.keys() <= schema["properties"].keys()
    return _address_of(document, "query.asked"), headers, body


async def _read_answer(read: Callable[[], list[Row]], query_id: str) -> list[Row]:
    """Poll with the client until the answer is complete."""
    with anyio.fail_after(100):
        while True:
            rows = [row for row in await anyio.to_thread.run_sync(read) if row["headers"].get("ce_causationid") == query_id]
            if any(row["headers"]["ce_type"] == "answer.completed" for row in rows):
                return rows


def _assert_told_once_and_truly(rows: list[Row], key: str) -> None:
    """By the README: drop ids that were seen, join the deltas of the highest attempt by sequence."""
    once = {row["headers"]["ce_id"]: row for row in rows}.values()
    assert {row["key"] for row in once} == {key}
    deltas = [row["body"] for row in once if row["headers"]["ce_type"] == "answer.delta"]
    last = max(delta["attempt"] for delta in deltas)
    joined = "".join(delta["text"] for delta in sorted(deltas, key=lambda one: one["sequence"]) if delta["attempt"] == last)
    completed = [row["body"] for row in once if row["headers"]["ce_type"] == "answer.completed"]
    assert [one["text"] for one in completed] == [joined]


@KAFKA
@needs_kcat
@pytest.mark.parametrize("mode", ["binary", "structured"])
async def test_kcat_asks_and_reads_the_streamed_answer(servers, staffed, world_in, tmp_path, mode):
    document = await _asyncapi(staffed, tmp_path)
    async with world_in(staffed) as world:
        tenant = world.tenant()
        topic, headers, body = _question(document, tenant)
        world.asked[headers["ce_id"]] = tenant
        kcat = ["kcat", "-b", servers.host.stack.endpoints.kafka_bootstrap, "-q"]
        if mode == "structured":
            body = {name.removeprefix("ce_"): value for name, value in headers.items()} | {"specversion": "1.0", "data": body}
            headers = {"content-type": "application/cloudevents+json; charset=utf-8"}
        given = [part for name, value in headers.items() for part in ("-H", f"{name}={value}")]
        ask = [*kcat, "-P", "-t", topic, "-k", f"{tenant}/chat-1", "-X", "topic.partitioner=murmur2_random", *given]
        await anyio.to_thread.run_sync(lambda: _run(ask, json.dumps(body)))

        def read() -> list[Row]:
            lines = _run([*kcat, "-C", "-t", _address_of(document, "answer.completed"), "-o", "beginning", "-e", "-J"]).splitlines()
            records = [json.loads(line) for line in lines]
            return [{"key": r["key"], "headers": _pairs(r["headers"]), "body": json.loads(r["payload"])} for r in records]

        rows = await _read_answer(read, f"{tenant}-q")
        _assert_told_once_and_truly(rows, f"{tenant}/chat-1")
        await world.until_ended()


def _pairs(flat: list[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


@KAFKA
@needs_java
async def test_the_java_console_clients_ask_and_read_the_streamed_answer(servers, staffed, world_in, tmp_path):
    document = await _asyncapi(staffed, tmp_path)
    await fetch()
    async with world_in(staffed) as world:
        tenant = world.tenant()
        topic, headers, body = _question(document, tenant)
        world.asked[headers["ce_id"]] = tenant
        bootstrap = ("--bootstrap-server", servers.host.stack.endpoints.kafka_bootstrap)
        produce = tool_command(
            *("org.apache.kafka.tools.ConsoleProducer", *bootstrap, "--topic", topic),
            *("--reader-property", "parse.headers=true", "--reader-property", "parse.key=true"),
        )
        line = "\t".join((",".join(f"{name}:{value}" for name, value in headers.items()), f"{tenant}/chat-1", json.dumps(body)))
        await anyio.to_thread.run_sync(lambda: _run(produce, line + "\n"))
        consume = tool_command(
            *("org.apache.kafka.tools.consumer.ConsoleConsumer", *bootstrap, "--topic", _address_of(document, "answer.completed")),
            *("--from-beginning", "--timeout-ms", "6000"),
            *("--formatter-property", "print.headers=true", "--formatter-property", "print.key=true"),
        )

        def read() -> list[Row]:
            fields = [line.split("\t", 2) for line in _run(consume).splitlines() if line.count("\t") >= 2]
            return [
                {"key": key, "headers": dict(one.split(":", 1) for one in given.split(",")), "body": json.loads(value)}
                for given, key, value in fields
            ]

        rows = await _read_answer(read, f"{tenant}-q")
        _assert_told_once_and_truly(rows, f"{tenant}/chat-1")
        await world.until_ended()


async def test_everything_that_was_published_keeps_the_contract(staffed):
    """Every record that this run left on the output topics, by the document alone."""
    contract = contract_of(staffed.settings.topic_prefix)
    problems, count = [], 0
    async with scan(staffed.settings.kafka(), [staffed.catalogue.name(spec) for spec in OUTPUTS]) as records:
        async for record in records:
            problems += contract.problems(record)
            count += 1
    assert problems == []
    if not count:
        pytest.skip("nothing was published before: run it with the other stories")


def test_the_contract_is_not_blind():
    """The control: a wrong type, a missing field, a wrong value and a wrong key are each found."""
    contract = Contract(contract_of("").document)
    body = {"thread_id": "t", "query_id": "q", "attempt": 1, "sequence": 0, "text": "x"}
    headers = (("ce_type", b"answer.delta"), ("ce_tenant", b"a"), ("ce_partitionkey", b"a/t"))

    def problems(body: Row, headers: Any = headers, key: bytes = b"a/t") -> list[str]:
        return contract.problems(RawRecord("answers", 0, 0, key, json.dumps(body).encode(), headers))

    assert problems(body) == []
    assert problems(body, key=b"b/t")
    assert problems(body | {"sequence": "first"})
    assert problems({name: value for name, value in body.items() if name != "text"})
    assert problems(body, headers[:1] + headers[2:])
    assert problems(body, (("ce_type", b"answer.shouted"), *headers[1:]))
    assert problems(body, (*headers, ("ce_specversion", b"0.3")))
    assert contract.problems(RawRecord(QUERIES.name, 0, 0, b"a/t", b"{}", headers))
