"""Apache Kafka as one KRaft node from Maven artifacts, where Java and Maven are there.

What is promised of topics, groups and offsets is proven on this broker. The artifacts are fetched once into a folder of ours.
"""

import base64
import functools
import re
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.local.folders import writable_folder
from infra.local.kafka_probe import missing_from_broker
from infra.local.ports import HOST, free_port, port_or_free
from infra.local.processes import Server, ServerSpec
from topics.errors import ConfigError

KAFKA_VERSION: Final = "4.3.1"

_OLDEST_JAVA: Final = 17
_FETCH_TIMEOUT_S: Final = 240.0
_FORMAT_TIMEOUT_S: Final = 60.0
_START_TIMEOUT_S: Final = 60.0
_ARTIFACTS: Final = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    # The command line tools: what upstream teams produce and look with.
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    # Kafka names no log writer of its own; this one fits its slf4j-api and writes to standard error.
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)
_JAVA_OPTIONS: Final = (
    "-Xmx512m",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
)


def apache_kafka_missing() -> str | None:
    """None when Java 17 or newer and Maven are found, else one sentence that says what is missing."""
    java = shutil.which("java")
    if java is None:
        return f"Apache Kafka needs Java {_OLDEST_JAVA} or newer, and no `java` is on the PATH"
    version = _java_version(java)
    if version < _OLDEST_JAVA:
        return f"Apache Kafka needs Java {_OLDEST_JAVA} or newer, and {java} is version {version}"
    if shutil.which("mvn") is None:
        return "Apache Kafka is fetched by Maven, and no `mvn` is on the PATH"
    return None


def default_cache_dir() -> Path:
    """Where the artifacts are kept when nobody says otherwise."""
    return Path.home() / ".cache" / "sluice"


def classpath(cache_dir: Path | None = None) -> str:
    """What to give `java -cp` to run Kafka's own tools, such as `org.apache.kafka.tools.ConsoleProducer`.

    Call `fetch` first, or start a broker with the same folder.
    """
    return str(_jars(cache_dir or default_cache_dir()) / "*")


def tool_command(tool: str, *arguments: str, cache_dir: Path | None = None) -> tuple[str, ...]:
    """The command line of one of Kafka's tools, by its class: `tool_command("org.apache.kafka.tools.TopicCommand", ...)`."""
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return ("java", "-Xmx256m", quiet, "-cp", classpath(cache_dir), tool, *arguments)


async def fetch(cache_dir: Path | None = None, *, log_dir: Path | None = None) -> Path:
    """Bring Kafka's artifacts into a folder, once. Returns the folder of the jars.

    Raises:
        ConfigError: Java or Maven is missing, the folder cannot be written, or Maven failed. Nothing half fetched is left in use.
    """
    jars = _jars(cache_dir or default_cache_dir())
    if jars.is_dir():
        return jars
    if missing := apache_kafka_missing():
        raise ConfigError(missing)
    cache = writable_folder(jars.parent, setting="cache_dir")
    logs = cache if log_dir is None else writable_folder(log_dir, setting="data_dir")
    # Its own folder, moved into place when whole: others may be fetching, and a fetch may be cut off.
    partial = cache / f".fetching-{secrets.token_hex(6)}"
    partial.mkdir()
    try:
        (partial / "pom.xml").write_text(_pom())
        await Server(
            ServerSpec(
                name=f"the fetch of Apache Kafka {KAFKA_VERSION}",
                command=("mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars", "-DincludeScope=runtime"),
                log_path=logs / "maven.log",
                start_timeout_s=_FETCH_TIMEOUT_S,
                cwd=partial,
            )
        ).run_to_end()
        if not jars.is_dir():
            (partial / "jars").rename(jars)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return jars


def build_apache_kafka(
    *,
    data_dir: Path,
    cache_dir: Path | None = None,
    port: int | None = None,
    second_listener: tuple[int, int] | None = None,
    overrides: Mapping[str, object] | None = None,
    setting: str = "port",
) -> tuple[Server, str]:
    """A broker that is ready to be started, and its bootstrap address. Its data survives restarts.

    The first start fetches the artifacts and formats the data folder; both have bounds of their own.

    Args:
        second_listener: (port, advertised port) of another door. Who comes in there is sent to the advertised port from then on,
            where a proxy may stand.
        overrides: Broker settings that go before ours.

    Raises:
        ConfigError: Java or Maven is missing, the port is taken, or a folder cannot be written.
    """
    if missing := apache_kafka_missing():
        raise ConfigError(missing)
    folder = writable_folder(data_dir / "kafka", setting="data_dir")
    logs = writable_folder(data_dir / "logs", setting="data_dir")
    cache = (cache_dir or default_cache_dir()).absolute()
    node = _Node(
        folder=folder,
        logs=logs,
        cache_dir=cache,
        port=port_or_free(port, setting=setting),
        controller_port=free_port(),
        second_listener=second_listener,
        overrides=overrides or {},
    )

    async def probe() -> str | None:
        return await missing_from_broker(node.address)

    spec = ServerSpec(
        name="apache-kafka",
        command=("java", *_JAVA_OPTIONS, "-cp", classpath(cache), "kafka.Kafka", str(node.settings_path)),
        log_path=logs / "kafka.log",
        probe=probe,
        start_timeout_s=_START_TIMEOUT_S,
        cwd=folder,
        lock_path=folder / ".lock",
        prepare=node.prepare,
    )
    return Server(spec), node.address


@dataclass(frozen=True, slots=True)
class _Node:
    """Where one broker keeps things, and what must be there before it starts."""

    folder: Path
    logs: Path
    cache_dir: Path
    port: int
    controller_port: int
    second_listener: tuple[int, int] | None
    overrides: Mapping[str, object]

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def settings_path(self) -> Path:
        return self.folder / "server.properties"

    async def prepare(self) -> None:
        await fetch(self.cache_dir, log_dir=self.logs)
        self.settings_path.write_text("".join(f"{name}={value}\n" for name, value in self._settings().items()))
        if not (self.folder / "topics" / "meta.properties").exists():
            await self._format()

    async def _format(self) -> None:
        cluster_id = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        # A dash in front would be read as an option.
        arguments = ("format", "--cluster-id", f"s{cluster_id[1:]}", "--config", str(self.settings_path), "--ignore-formatted")
        await Server(
            ServerSpec(
                name="the format of Kafka's data folder",
                command=tool_command("kafka.tools.StorageTool", *arguments, cache_dir=self.cache_dir),
                log_path=self.logs / "kafka-format.log",
                start_timeout_s=_FORMAT_TIMEOUT_S,
                lock_path=self.folder / ".lock",
            )
        ).run_to_end()

    def _settings(self) -> dict[str, object]:
        listeners, advertised = f"PLAINTEXT://{self.address}", f"PLAINTEXT://{self.address}"
        if self.second_listener is not None:
            port, advertised_port = self.second_listener
            listeners += f",SECOND://{HOST}:{port}"
            advertised += f",SECOND://{HOST}:{advertised_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            # Named here and not in the metadata log, so that the next start may use another port.
            "controller.quorum.voters": f"1@{HOST}:{self.controller_port}",
            "listeners": f"{listeners},CONTROLLER://{HOST}:{self.controller_port}",
            "advertised.listeners": advertised,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": self.folder / "topics",
            # A misspelt topic must fail here as it does in production.
            "auto.create.topics.enable": "false",
            "default.replication.factor": 1,
            "min.insync.replicas": 1,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 4,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            # One member is the rule here: waiting for others would cost each test 3 s.
            "group.initial.rebalance.delay.ms": 0,
            **self.overrides,
        }


def _jars(cache_dir: Path) -> Path:
    return cache_dir / f"apache-kafka-{KAFKA_VERSION}"


@functools.cache
def _java_version(java: str) -> int:
    """The major version; 0 when it cannot be told."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603 - `java` of the PATH
    except (OSError, subprocess.TimeoutExpired):
        return 0
    # Java 8 and older say 1.8: too old by either reading.
    found = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    return int(found[1]) if found else 0


def _pom() -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"
        for group, artifact, version in _ARTIFACTS
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>sluice</groupId><artifactId>apache-kafka</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>\n"
    )
