"""Make text storable everywhere: Redis, JSON, Kafka headers, a model's request."""

import unicodedata
from typing import Any, Final, cast

from topics.errors import MalformedError

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
MAX_LEVELS: Final = 64
MAX_CLUSTER_CHARS: Final = 32

_JOINER: Final = "\u200d"
_FLAG_LETTERS: Final = range(0x1F1E6, 0x1F200)
_SKIN_TONES: Final = range(0x1F3FB, 0x1F400)
_TAGS: Final = range(0xE0020, 0xE0080)


def clean_text(text: str) -> str:
    """Replace lone surrogates by U+FFFD and remove NUL; everything else, marks and joiners included, stays as it is."""
    if "\x00" in text:
        text = text.replace("\x00", "")
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join(REPLACEMENT if 0xD800 <= ord(char) <= 0xDFFF else char for char in text)
    return text


def shorten(text: str, max_chars: int) -> str:
    """Cut a text that is too long, but not inside what is read as one character: an emoji of several, or a letter and its marks.

    A cluster of more than `MAX_CLUSTER_CHARS` is cut all the same, and so is one that leaves nothing before it.
    """
    if len(text) <= max_chars:
        return text
    least = max(max_chars - MAX_CLUSTER_CHARS, 0)
    end = next((place for place in range(max_chars, least, -1) if not _is_inside(text, place)), max_chars)
    return text[:end]


def _is_inside(text: str, place: int) -> bool:
    """Whether the characters before and behind a place belong together."""
    before, behind = text[place - 1], text[place]
    if _JOINER in {before, behind} or unicodedata.category(behind) in {"Mn", "Me", "Mc"}:
        return True
    code = ord(behind)
    if code in _SKIN_TONES or code in _TAGS:
        return True
    if code not in _FLAG_LETTERS:
        return False
    begin = place
    while begin and ord(text[begin - 1]) in _FLAG_LETTERS:
        begin -= 1
    return (place - begin) % 2 == 1


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
