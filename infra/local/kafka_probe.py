"""Whether a broker answers as a broker, not only as an open port."""

import contextlib
from typing import Any, Final, cast

import anyio
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

_TIMEOUT_MS: Final = 5_000


async def missing_from_broker(address: str) -> str | None:
    """None when the broker at `host:port` answers a metadata request with a broker in it, else what is missing."""
    host, _, port = address.rpartition(":")
    try:
        # Asked first: the Kafka client logs an error for each port that is still closed.
        with anyio.fail_after(_TIMEOUT_MS / 1_000):
            stream = await anyio.connect_tcp(host, int(port))
            await stream.aclose()
    except (OSError, TimeoutError):
        return f"nobody listens on {address}"
    # The client's methods are not typed.
    client = cast("Any", AIOKafkaAdminClient(bootstrap_servers=address, request_timeout_ms=_TIMEOUT_MS))
    try:
        await client.start()
        cluster: dict[str, Any] = await client.describe_cluster()
    except (KafkaError, OSError) as error:
        return f"{address} does not answer a metadata request: {error}"
    finally:
        with contextlib.suppress(KafkaError, OSError):
            await client.close()
    return None if cluster["brokers"] else f"{address} knows no broker yet"
