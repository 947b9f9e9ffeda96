"""Make text storable everywhere: Redis, JSON, Kafka headers, a model's request."""

from typing import Any, Final, cast

from topics.errors import MalformedError

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
MAX_LEVELS: Final = 64


def clean_text(text: str) -> str:
    """Replace lone surrogates by U+FFFD and remove NUL; everything else, marks and joiners included, stays as it is."""
    if "\x00" in text:
        text = text.replace("\x00", "")
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join(REPLACEMENT if 0xD800 <= ord(char) <= 0xDFFF else char for char in text)
    return text


def clean_json(value: Any, *, levels: int = MAX_LEVELS) -> Any:
    """Apply `clean_text` to every string of a JSON value, keys included.

    Args:
        levels: How deep objects and lists may lie in one another; whoever walks the value later has less stack than we.

    Raises:
        MalformedError: They lie deeper.
    """
    if isinstance(value, str):
        return clean_text(value)
    if not isinstance(value, list | dict):
        return value
    if levels == 0:
        raise MalformedError(f"objects and lists lie more than {MAX_LEVELS} levels deep", code="too_deep")
    if isinstance(value, list):
        return [clean_json(item, levels=levels - 1) for item in cast("list[Any]", value)]
    return {clean_text(key): clean_json(item, levels=levels - 1) for key, item in cast("dict[str, Any]", value).items()}
