"""What we do not leave to aiokafka: which codecs it lacks, what it takes for an answer, and in whose name it commits."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from aiokafka import codec
from aiokafka.errors import GroupAuthorizationFailedError, IllegalGenerationError, NotCoordinatorForGroupError, for_code
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest

from topics.errors import ConfigError

TopicPartition = tuple[str, int]


def check_codecs() -> None:
    """See that every codec that a producer or a topic may choose can be read.

    Raises:
        ConfigError: Some cannot. Found later, the consumer would stop at the first such record, and again after every restart.
    """
    readable = {"gzip": codec.has_gzip, "snappy": codec.has_snappy, "lz4": codec.has_lz4, "zstd": codec.has_zstd}
    missing = [name for name, is_readable in readable.items() if not is_readable()]
    if missing:
        raise ConfigError(f"records compressed with {', '.join(missing)} cannot be read: install aiokafka[lz4,snappy,zstd]")


def refuse_missing(wanted: Iterable[str], found: Iterable[str]) -> None:
    """See that the topics are there.

    Raises:
        ConfigError: Some are not.
    """
    missing = sorted(set(wanted) - set(found))
    if missing:
        raise ConfigError(f"topics are missing ({', '.join(missing)}): `sluice topics apply` creates them")


def with_checked_positions(
    send: Callable[..., Awaitable[Any]], *, seen: Callable[[set[TopicPartition]], None] = lambda _: None
) -> Callable[..., Awaitable[Any]]:
    """Let a failed answer about committed positions be a failure: aiokafka looks at its single partitions only.

    What passes is an answer without an error that speaks of every partition that was asked about. Anything else is raised, as
    an error that makes the client look for the coordinator again and ask once more, unless the broker denies the group.

    Args:
        seen: Told of partitions that have a committed position.
    """

    async def checked(node_id: Any, request: Any, **how: Any) -> Any:
        response = await send(node_id, request, **how)
        if isinstance(request, OffsetFetchRequest):
            group, asked = _asked_about(request)
            told = {(topic, one[0]): one[1] for topic, partitions in response.topics for one in partitions}
            error = for_code(getattr(response, "error_code", 0))
            if error is GroupAuthorizationFailedError:
                raise error(group)
            if error.errno or not asked <= told.keys():
                raise NotCoordinatorForGroupError(error.message)
            seen({partition for partition, position in told.items() if position >= 0})
        return response

    return checked


def with_members_commits(send: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Refuse to commit in nobody's name. A client that was thrown out of its group commits like an administrator.

    The broker takes such a commit when the group has no members: a worker that hung while another finished and left would set
    the group back.
    """

    async def checked(node_id: Any, request: Any, **how: Any) -> Any:
        if isinstance(request, OffsetCommitRequest) and request._consumer_group_generation_id < 0:  # noqa: SLF001 -- told nowhere else  # pyright: ignore[reportPrivateUsage]
            raise IllegalGenerationError("not a member")
        return await send(node_id, request, **how)

    return checked


def _asked_about(request: Any) -> tuple[str, set[TopicPartition]]:
    asked = {(topic, number) for topic, numbers in request._partitions or () for number in numbers}  # noqa: SLF001 -- told nowhere else
    return request._consumer_group, asked  # noqa: SLF001 -- as above
