"""Older payload versions brought to the current one, a function a step.

No payload has a second version yet. A step is added as `(type, from_version): function`, and stays for as long as a topic
or a dead letter may hold the old one.
"""

from collections.abc import Callable
from typing import Any, Final

from topics.errors import MalformedError, UnknownVersionError

Step = Callable[[dict[str, Any]], dict[str, Any]]

STEPS: Final[dict[tuple[str, int], Step]] = {}


def upcast(
    data: dict[str, Any], *, event_type: str, version: int, current: int, steps: dict[tuple[str, int], Step] = STEPS
) -> dict[str, Any]:
    """Bring `data` from `version` to `current`.

    Raises:
        UnknownVersionError: `version` is newer than this build, or a step is missing.
        MalformedError: A step does not find what its version promises.
    """
    if version > current:
        raise UnknownVersionError(f"{event_type} version {version} is newer than {current}, the newest this build reads")
    for step in range(version, current):
        convert = steps.get((event_type, step))
        if convert is None:
            raise UnknownVersionError(f"{event_type} version {step} can no longer be read")
        try:
            data = convert(data)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise MalformedError(f"not a valid {event_type} of version {step}", code="bad_payload") from error
    return data
