"""Reconcile a cluster with the catalogue: what is missing, what differs, and the change that mends it."""

from dataclasses import dataclass
from typing import Any, Final, Literal, Self

import anyio
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError

from infra.kafka.connection import KafkaConnection
from topics.catalogue import Catalogue, TopicSpec
from topics.errors import ConfigError, OutageError

SHOWN_WITHIN_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Step:
    """One difference between the cluster and the catalogue. Partitions are only ever added."""

    topic: str
    action: Literal["create", "add_partitions", "too_many_partitions"]
    partitions: int
    detail: str


def topic_configs(spec: TopicSpec) -> dict[str, str]:
    """Broker-side settings of a topic."""
    return {"cleanup.policy": spec.cleanup, "retention.ms": str(spec.retention_ms)}


async def plan(connection: KafkaConnection, catalogue: Catalogue) -> list[Step]:
    """What `apply` would do.

    Raises:
        ConfigError: The cluster cannot be reached.
    """
    async with _Admin(connection) as admin:
        return _steps(await admin.partitions(), catalogue)


async def apply(connection: KafkaConnection, catalogue: Catalogue, *, replication_factor: int) -> list[Step]:
    """Create what is missing and raise partitions, and return when the cluster shows it. Running it twice does no harm.

    Raises:
        ConfigError: The cluster cannot be reached, or refuses the change.
        OutageError: The change was taken but does not show in time.
    """
    async with _Admin(connection) as admin:
        steps = _steps(await admin.partitions(), catalogue)
        await admin.create([step for step in steps if step.action == "create"], catalogue, replication_factor)
        await admin.grow([step for step in steps if step.action == "add_partitions"])
        await admin.wait_for({step.topic: step.partitions for step in steps if step.action != "too_many_partitions"})
        return steps


def _steps(existing: dict[str, int], catalogue: Catalogue) -> list[Step]:
    steps: list[Step] = []
    for topic, spec in sorted(catalogue.all_names().items()):
        found = existing.get(topic, 0)
        if not found:
            steps.append(Step(topic, "create", spec.partitions, f"{spec.partitions} partitions, {spec.cleanup}"))
        elif found < spec.partitions:
            steps.append(Step(topic, "add_partitions", spec.partitions, f"from {found}; keys move to other partitions"))
        elif found > spec.partitions:
            steps.append(Step(topic, "too_many_partitions", found, f"the catalogue says {spec.partitions}; left as it is"))
    return steps


class _Admin:
    """aiokafka's admin client, bounded and translated."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._client: Any = None

    async def __aenter__(self) -> Self:
        self._client = AIOKafkaAdminClient(**self._connection.client_options(), request_timeout_ms=15_000)
        try:
            with self._connection.connecting():
                await self._client.start()
        except ConfigError:
            await self._client.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def wait_for(self, wanted: dict[str, int]) -> None:
        """Return when every topic has its partitions: a topic that was just made is not known everywhere at once."""
        with anyio.move_on_after(SHOWN_WITHIN_S):
            while True:
                found = await self.partitions()
                if all(found.get(topic, 0) >= partitions for topic, partitions in wanted.items()):
                    return
                await anyio.sleep(0.1)
        raise OutageError(f"the new topics do not show within {SHOWN_WITHIN_S:g} s")

    async def partitions(self) -> dict[str, int]:
        """Topics of the cluster and how many partitions with a leader each has."""
        try:
            topics = await self._client.describe_topics()
        except KafkaError as error:
            raise OutageError(f"the cluster does not list its topics: {error}") from error
        return {topic["topic"]: _led(topic["partitions"]) for topic in topics if not topic["error_code"]}

    async def create(self, steps: list[Step], catalogue: Catalogue, replication_factor: int) -> None:
        """Create topics; one that exists by now is fine."""
        for step in steps:
            spec = catalogue.spec(step.topic)
            topic = NewTopic(step.topic, step.partitions, replication_factor, topic_configs=topic_configs(spec))
            try:
                response = await self._client.create_topics([topic])
            except TopicAlreadyExistsError:
                continue
            except KafkaError as error:
                raise ConfigError(f"topic {step.topic} cannot be created: {error}") from error
            _check(step.topic, response)

    async def grow(self, steps: list[Step]) -> None:
        """Add partitions."""
        for step in steps:
            try:
                await self._client.create_partitions({step.topic: NewPartitions(step.partitions)})
            except KafkaError as error:
                raise ConfigError(f"topic {step.topic} cannot get more partitions: {error}") from error


def _led(partitions: list[dict[str, Any]]) -> int:
    return sum(1 for partition in partitions if not partition.get("error_code") and partition.get("leader", 0) >= 0)


def _check(topic: str, response: Any) -> None:
    """The client reports a refused topic in its answer, not as an error."""
    for entry in response.topic_errors:
        code = entry[1]
        if code not in {0, TopicAlreadyExistsError.errno}:
            raise ConfigError(f"topic {topic} cannot be created: broker error {code} {entry[2] if len(entry) > 2 else ''}".strip())
