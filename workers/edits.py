"""An edit of a dead letter's value: JSON before, JSON after, and what changed in between. Pure.

Whoever reads a number must read the one that was there: what our JSON would write differently is refused, not rounded.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final, cast

from topics.errors import SluiceError
from topics.events import ValueChange, ValueEdit

MAX_CHANGES_BYTES: Final = 262_144  # of what changed, as JSON: it is kept for good in one event


class EditRefusedError(SluiceError):
    """This edit cannot be made. Nothing was written."""

    code = "edit_refused"


def changed(value: bytes | None, *, sets: Sequence[tuple[str, Any]] = (), removes: Sequence[str] = ()) -> bytes:
    """A JSON value with these members set, then those removed, written anew.

    Args:
        sets: JSON pointers (RFC 6901) with their new values; `-` behind an array's last element; `""` is the whole value.
        removes: JSON pointers.

    Raises:
        EditRefusedError: It is no JSON that can be written as it was read, or a pointer leads nowhere.
    """
    changes = [ValueChange(op="replace", path=path, value=new) for path, new in sets]
    changes += [ValueChange(op="remove", path=path) for path in removes]
    whole = next((change for change in changes if not change.path), None)
    document = whole.value if whole else _parsed(value)
    return json.dumps(applied(document, [change for change in changes if change.path]), ensure_ascii=False).encode()


def edit_of(before: bytes | None, after: bytes | None) -> ValueEdit:
    """What was changed. A value that was no JSON is replaced as a whole; it stays on the dead letters' topic.

    Raises:
        EditRefusedError: The new value is no JSON, says what the old one said, or so much changed that it cannot be kept.
    """
    new = _parsed(after)
    try:
        changes = tuple(_changes("", _parsed(before), new))
    except EditRefusedError:
        changes = (ValueChange(op="replace", path="", value=new),)
    if not changes:
        raise EditRefusedError("nothing was changed: send it back with `dead replay`", code="nothing_changed")
    if len(_text([change.model_dump() for change in changes])) > MAX_CHANGES_BYTES:
        raise EditRefusedError(f"more than {MAX_CHANGES_BYTES:,} bytes changed", code="too_much_changed")
    return ValueEdit(changes=changes, before_sha256=sha256(before), after_sha256=sha256(after))


def applied(document: Any, changes: Sequence[ValueChange]) -> Any:
    """A copy of a document with changes made, in their order.

    Raises:
        EditRefusedError: A pointer leads nowhere.
    """
    document = json.loads(_text(document))
    for change in changes:
        if not change.path:
            document = change.value
            continue
        parent, last = _parent(document, change.path)
        if isinstance(parent, dict):
            if change.op != "remove":
                parent[last] = change.value
            elif last in parent:
                del parent[last]
            else:
                raise _nowhere(change.path)
        elif change.op == "remove":
            del parent[_index(parent, last, change.path)]
        elif last == "-":
            parent.append(change.value)
        else:
            parent[_index(parent, last, change.path)] = change.value
    return document


def sha256(value: bytes | None) -> str:
    """The digest of a value, in hex; empty for a tombstone."""
    return "" if value is None else hashlib.sha256(value).hexdigest()


def _changes(path: str, before: Any, after: Any) -> Iterator[ValueChange]:
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _member_changes(path, cast("dict[str, Any]", before), cast("dict[str, Any]", after))
    elif isinstance(before, list) and isinstance(after, list) and len(cast("list[Any]", before)) == len(cast("list[Any]", after)):
        for index, (old, new) in enumerate(zip(cast("list[Any]", before), cast("list[Any]", after), strict=True)):
            yield from _changes(f"{path}/{index}", old, new)
    elif _text(before) != _text(after):
        yield ValueChange(op="replace", path=path, value=after, was=before)


def _member_changes(path: str, before: dict[str, Any], after: dict[str, Any]) -> Iterator[ValueChange]:
    for name, old in before.items():
        where = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
        if name in after:
            yield from _changes(where, old, after[name])
        else:
            yield ValueChange(op="remove", path=where, was=old)
    for name in after.keys() - before.keys():
        yield ValueChange(op="add", path=f"{path}/{name.replace('~', '~0').replace('/', '~1')}", value=after[name])


def _parent(document: Any, path: str) -> tuple[Any, str]:
    if not path.startswith("/"):
        raise EditRefusedError(f"{path!r} is no JSON pointer: it begins with a slash", code="bad_pointer")
    *names, last = [name.replace("~1", "/").replace("~0", "~") for name in path[1:].split("/")]
    for name in names:
        if isinstance(document, dict) and name in document:
            document = cast("dict[str, Any]", document)[name]
        elif isinstance(document, list):
            document = cast("list[Any]", document)[_index(cast("list[Any]", document), name, path)]
        else:
            raise _nowhere(path)
    if not isinstance(document, dict | list):
        raise _nowhere(path)
    return cast("Any", document), last


def _index(elements: list[Any], name: str, path: str) -> int:
    if not (name.isascii() and name.isdigit() and len(name) < 10 and str(int(name)) == name and int(name) < len(elements)):
        raise _nowhere(path)
    return int(name)


def _nowhere(path: str) -> EditRefusedError:
    return EditRefusedError(f"there is nothing at {path!r}", code="bad_pointer")


def _text(document: Any) -> str:
    return json.dumps(document, sort_keys=True)


def _parsed(value: bytes | None) -> Any:
    if value is None:
        raise EditRefusedError("a tombstone has no value", code="not_json")
    try:
        return json.loads(value, parse_float=_float, parse_constant=_refused, object_pairs_hook=_members)
    except EditRefusedError:
        raise
    except (ValueError, RecursionError) as error:
        raise EditRefusedError("the value is no JSON: give the whole of it with --value-file", code="not_json") from error


def _float(text: str) -> float:
    number = float(text)
    if number in {float("inf"), float("-inf")} or Decimal(text) != Decimal(repr(number)):
        _refused(text)
    return number


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        _refused("a name twice in one object")
    return members


def _refused(what: str) -> Any:
    raise EditRefusedError(f"not written back as it is: {what[:40]}", code="not_json")
