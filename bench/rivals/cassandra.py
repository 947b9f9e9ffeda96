"""Apache Cassandra as one node from Maven artifacts: prosody-events remembers there what it has handled. For the bench alone."""

from pathlib import Path
from typing import Final

import anyio

from infra.local import apache_kafka
from infra.local.folders import writable_folder
from infra.local.ports import HOST, free_port
from infra.local.processes import Server, ServerSpec

VERSION: Final = "5.0.5"

_FETCH_TIMEOUT_S: Final = 240.0
_START_TIMEOUT_S: Final = 90.0
_PROBE_WITHIN_S: Final = 2.0
# What Cassandra's own start script opens for it on Java 17.
_EXPORTS: Final = (
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
)
_OPENS: Final = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
)
_POM: Final = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>sluice</groupId><artifactId>cassandra</artifactId><version>1</version><dependencies><dependency>
<groupId>org.apache.cassandra</groupId><artifactId>cassandra-all</artifactId><version>{VERSION}</version>
</dependency></dependencies></project>
"""
_LOGGING: Final = """<configuration>
<appender name="out" class="ch.qos.logback.core.ConsoleAppender">
<encoder><pattern>%-5level %logger{20} %msg%n</pattern></encoder>
</appender>
<root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""


def build_cassandra(*, data_dir: Path) -> tuple[Server, str]:
    """A node that is ready to be started, and its address. The first start fetches the artifacts, in its own time.

    Raises:
        ConfigError: A folder cannot be written.
    """
    folder = writable_folder(data_dir / "cassandra", setting="data_dir")
    logs = writable_folder(data_dir / "logs", setting="data_dir")
    jars = apache_kafka.default_cache_dir().absolute() / f"cassandra-{VERSION}"
    port = free_port()

    async def prepare() -> None:
        await _fetch(jars, logs)
        (folder / "cassandra.yaml").write_text(_settings(folder, port))
        (folder / "logback.xml").write_text(_LOGGING)

    async def probe() -> str | None:
        try:
            with anyio.fail_after(_PROBE_WITHIN_S):
                await (await anyio.connect_tcp(HOST, port)).aclose()
        except (OSError, TimeoutError):
            return "nobody listens for CQL"
        return None

    spec = ServerSpec(
        name="cassandra",
        command=_command(folder, jars),
        log_path=logs / "cassandra.log",
        probe=probe,
        start_timeout_s=_START_TIMEOUT_S,
        prepare=prepare,
    )
    return Server(spec), f"{HOST}:{port}"


async def _fetch(jars: Path, logs: Path) -> None:
    """Bring the artifacts, once; what is half fetched is not in use."""
    if await anyio.Path(jars).is_dir():
        return
    partial = writable_folder(jars.with_name(f".{jars.name}-partial"), setting="cache_dir")
    (partial / "pom.xml").write_text(_POM)
    fetch = ServerSpec(
        name=f"the fetch of Cassandra {VERSION}",
        command=("mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars", "-DincludeScope=runtime"),
        log_path=logs / "maven.log",
        start_timeout_s=_FETCH_TIMEOUT_S,
        cwd=partial,
    )
    await Server(fetch).run_to_end()
    (partial / "jars").rename(jars)


def _command(folder: Path, jars: Path) -> tuple[str, ...]:
    opened = [f"--add-exports={name}=ALL-UNNAMED" for name in _EXPORTS] + [f"--add-opens={name}=ALL-UNNAMED" for name in _OPENS]
    options = {
        "cassandra.config": f"file://{folder}/cassandra.yaml",
        "cassandra.storagedir": str(folder),
        # One node has nobody to wait for.
        "cassandra.skip_wait_for_gossip_to_settle": "0",
        "cassandra.ring_delay_ms": "0",
        "cassandra.superuser_setup_delay_ms": "-1",
        "jdk.attach.allowAttachSelf": "true",
        "logback.configurationFile": f"{folder}/logback.xml",
    }
    defined = [f"-D{name}={value}" for name, value in options.items()]
    return ("java", "-Xmx768m", *opened, *defined, "-cp", f"{jars}/*", "org.apache.cassandra.service.CassandraDaemon")


def _settings(folder: Path, port: int) -> str:
    storage = f"{HOST}:{free_port()}"
    lines = {
        "cluster_name": "bench",
        "num_tokens": 1,
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "endpoint_snitch": "SimpleSnitch",
        "listen_address": HOST,
        "rpc_address": HOST,
        "storage_port": storage.rpartition(":")[2],
        "native_transport_port": port,
        "commitlog_sync": "periodic",
        "commitlog_sync_period": "10000ms",
        "memtable_allocation_type": "heap_buffers",
        "auto_snapshot": "false",
        "data_file_directories": f"[{folder}/data]",
        "commitlog_directory": f"{folder}/commitlog",
        "saved_caches_directory": f"{folder}/saved_caches",
        "hints_directory": f"{folder}/hints",
        "cdc_raw_directory": f"{folder}/cdc",
        "seed_provider": f'[{{class_name: org.apache.cassandra.locator.SimpleSeedProvider, parameters: [{{seeds: "{storage}"}}]}}]',
    }
    return "".join(f"{name}: {value}\n" for name, value in lines.items())
