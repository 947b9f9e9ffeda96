"""Reconcile a cluster with the catalogue: look at what is there, and carry out the steps of `topic_plan`."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Self

import anyio
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError, TopicAlreadyExistsError

from infra.kafka import topic_plan
from infra.kafka.connection import KafkaConnection
from infra.kafka.topic_plan import FoundTopic, Step
from topics.catalogue import Catalogue
from topics.errors import ConfigError, OutageError

SHOWN_WITHIN_S: Final = 20.0
SET_ON_THE_TOPIC: Final = 1  # where a broker says that a setting comes from


async def plan(connection: KafkaConnection, catalogue: Catalogue, *, allow_lowering: bool = False) -> list[Step]:
    """What `apply` would do, and what it would leave as it is.

    Raises:
        ConfigError: The cluster cannot be reached.
    """
    async with _Admin(connection) as admin:
        return topic_plan.steps(await admin.topics(catalogue), catalogue, allow_lowering=allow_lowering)


async def apply(
    connection: KafkaConnection, catalogue: Catalogue, *, replication_factor: int, allow_lowering: bool = False
) -> list[Step]:
    """Create what is missing, add partitions, change settings, and return when the cluster shows it.

    Running it twice does no harm. Returns what was done, and what differs and was left as it is.

    Raises:
        ConfigError: The cluster cannot be reached, or refuses the change.
        OutageError: The change was taken but does not show in time.
    """
    async with _Admin(connection) as admin:

        async def look() -> list[Step]:
            found = await admin.topics(catalogue)
            return topic_plan.steps(found, catalogue, replicas=replication_factor, allow_lowering=allow_lowering)

        steps = await look()
        await admin.create([step for step in steps if step.action == "create"], replication_factor)
        await admin.grow([step for step in steps if step.action == "add_partitions"])
        await admin.change([step for step in steps if step.action == "change"])
        await _until_shown(look)
        return steps


async def _until_shown(look: Callable[[], Awaitable[list[Step]]]) -> None:
    """Return when nothing is left to do: what was just made or changed is not known everywhere at once."""
    with anyio.move_on_after(SHOWN_WITHIN_S):
        while True:
            if not any(step.action in {"create", "add_partitions", "change"} for step in await look()):
                return
            await anyio.sleep(0.1)
    raise OutageError(f"the changed topics do not show within {SHOWN_WITHIN_S:g} s")


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

    async def topics(self, catalogue: Catalogue) -> dict[str, FoundTopic]:
        """The catalogue's topics that the cluster has, with their settings where it tells them."""
        found = {name: one for name, one in (await self._described()).items() if name in catalogue.all_names()}
        configs = await self._configs([name for name, one in found.items() if one.partitions])
        return {
            name: FoundTopic(one.partitions, one.replicas, {key: value for key, (value, _) in configs.get(name, {}).items()})
            for name, one in found.items()
        }

    async def _described(self) -> dict[str, FoundTopic]:
        """Topics of the cluster, and how many partitions with a leader each has."""
        try:
            topics = await self._client.describe_topics()
        except KafkaError as error:
            raise OutageError(f"the cluster does not list its topics: {error}") from error
        return {topic["topic"]: _found(topic["partitions"]) for topic in topics if not topic["error_code"]}

    async def _configs(self, names: Sequence[str]) -> dict[str, dict[str, tuple[str, int]]]:
        """Settings of topics, each with where it comes from. Empty where the broker does not tell."""
        if not names:
            return {}
        try:
            answers = await self._client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name) for name in names])
        except IncompatibleBrokerVersion:
            return {}
        except KafkaError as error:
            raise OutageError(f"the cluster does not tell the settings of its topics: {error}") from error
        return {
            resource[3]: {entry[0]: (entry[1], int(entry[3])) for entry in resource[4] if entry[1] is not None}
            for answer in answers
            for resource in answer.resources
            if not resource[0]
        }

    async def create(self, steps: list[Step], replication_factor: int) -> None:
        """Create topics; one that exists by now is fine."""
        for step in steps:
            topic = NewTopic(step.topic, step.partitions, replication_factor, topic_configs=dict(step.configs))
            try:
                response = await self._client.create_topics([topic])
            except TopicAlreadyExistsError:
                continue
            except KafkaError as error:
                raise ConfigError(f"topic {step.topic} cannot be created: {error}") from error
            _check(f"topic {step.topic} cannot be created", response.topic_errors)

    async def change(self, steps: list[Step]) -> None:
        """Change settings. What else is set on the topic is said again: the client's request would drop it."""
        wanted: dict[str, dict[str, str]] = {}
        for step in steps:
            wanted.setdefault(step.topic, {}).update(step.configs)
        for topic, known in (await self._configs(list(wanted))).items():
            kept = {name: value for name, (value, source) in known.items() if source == SET_ON_THE_TOPIC}
            resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=kept | wanted[topic])
            try:
                answers = await self._client.alter_configs([resource])
            except KafkaError as error:
                raise ConfigError(f"topic {topic} cannot be changed: {error}") from error
            for answer in answers:
                _check(f"topic {topic} cannot be changed", [(one[3], one[0], one[1]) for one in answer.resources])

    async def grow(self, steps: list[Step]) -> None:
        """Add partitions."""
        for step in steps:
            try:
                await self._client.create_partitions({step.topic: NewPartitions(step.partitions)})
            except KafkaError as error:
                raise ConfigError(f"topic {step.topic} cannot get more partitions: {error}") from error


def _found(partitions: list[dict[str, Any]]) -> FoundTopic:
    led = [one for one in partitions if not one.get("error_code") and one.get("leader", 0) >= 0]
    return FoundTopic(len(led), min((len(one.get("replicas", (1,))) for one in led), default=1))


def _check(what: str, entries: Sequence[Sequence[Any]]) -> None:
    """The client reports a refused topic in its answer, not as an error."""
    for entry in entries:
        code = entry[1]
        if code not in {0, TopicAlreadyExistsError.errno}:
            raise ConfigError(f"{what}: broker error {code} {entry[2] if len(entry) > 2 else ''}".strip())
