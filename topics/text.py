"""Make text storable everywhere: Redis, JSON, Kafka headers, a model's request."""

from typing import Any, cast

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def clean_text(text: str) -> str:
    """Replace lone surrogates by U+FFFD and remove NUL; everything else, marks and joiners included, stays as it is."""
    if "\x00" in text:
        text = text.replace("\x00", "")
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join(REPLACEMENT if 0xD800 <= ord(char) <= 0xDFFF else char for char in text)
    return text


def clean_json(value: Any) -> Any:
    """Apply `clean_text` to every string of a JSON value, keys included."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [clean_json(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {clean_text(key): clean_json(item) for key, item in cast("dict[str, Any]", value).items()}
    return value
