"""What changed in a dead letter's value: told so that it can be done again, and never rounded."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.topics.payloads import json_values
from topics.events import ValueChange
from workers.edits import MAX_CHANGES_BYTES, EditRefusedError, applied, changed, edit_of, sha256

QUESTION = b'{"thread_id":"t","text":"hi","tags":["a","b"],"a/b":{"m~n":1}}'


@given(before=json_values, after=json_values)
def test_what_is_told_makes_the_new_value_of_the_old_one(before: Any, after: Any):
    old, new = json.dumps(before).encode(), json.dumps(after).encode()
    if json.dumps(before, sort_keys=True) == json.dumps(after, sort_keys=True):
        with pytest.raises(EditRefusedError, match="nothing was changed"):
            edit_of(old, new)
        return
    edit = edit_of(old, new)
    assert json.dumps(applied(before, edit.changes), sort_keys=True) == json.dumps(after, sort_keys=True)
    assert (edit.before_sha256, edit.after_sha256) == (sha256(old), sha256(new))


def test_only_what_changed_is_told_with_what_was_there():
    edit = edit_of(
        QUESTION, changed(QUESTION, sets=[("/text", "hello"), ("/tags/1", 1), ("/a~1b/m~0n", 2)], removes=["/thread_id"])
    )
    assert {(one.op, one.path, one.value, one.was) for one in edit.changes} == {
        ("replace", "/text", "hello", "hi"),
        ("replace", "/tags/1", 1, "b"),
        ("replace", "/a~1b/m~0n", 2, 1),
        ("remove", "/thread_id", None, "t"),
    }


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ([("/new", None)], {"a": [1], "new": None}),
        ([("/a/-", 2)], {"a": [1, 2]}),
        ([("/a/0", {"x": 1.5})], {"a": [{"x": 1.5}]}),
        ([("", {"b": 1}), ("/c", 2)], {"b": 1, "c": 2}),
    ],
)
def test_a_pointer_says_where(sets: list[tuple[str, Any]], expected: Any):
    assert json.loads(changed(b'{"a":[1]}', sets=sets)) == expected


@pytest.mark.parametrize("path", ["text", "/nowhere/x", "/tags/2", "/tags/01", "/tags/-1", "/tags/x", "/text/x"])
def test_a_pointer_that_leads_nowhere_changes_nothing(path: str):
    with pytest.raises(EditRefusedError) as caught:
        changed(QUESTION, sets=[(path, 1)])
    assert caught.value.reason_code == "bad_pointer"


@pytest.mark.parametrize("path", ["/nobody", "/tags/-", "/tags/7"])
def test_only_what_is_there_can_be_removed(path: str):
    with pytest.raises(EditRefusedError):
        changed(QUESTION, removes=[path])


@pytest.mark.parametrize(
    "value", [None, b"", b"\xff", b"never JSON", b'{"a":1,"a":2}', b"[1e400]", b"[NaN]", b"[0.1000000000000000055]", b"[" * 100_000]
)
def test_what_would_be_written_back_differently_is_refused(value: bytes | None):
    with pytest.raises(EditRefusedError) as caught:
        changed(value, sets=[("/text", "x")])
    assert caught.value.reason_code == "not_json"


@given(junk=st.binary(max_size=20))
def test_a_value_that_was_no_json_is_replaced_as_a_whole(junk: bytes):
    before = b"\xff" + junk
    edit = edit_of(before, b'{"text":"hi"}')
    assert edit.changes == (ValueChange(op="replace", path="", value={"text": "hi"}),)
    assert changed(before, sets=[("", {"text": "hi"})]) == b'{"text": "hi"}'


def test_an_edit_that_is_too_large_to_be_kept_is_refused():
    with pytest.raises(EditRefusedError) as caught:
        edit_of(b"{}", json.dumps({"text": "x" * MAX_CHANGES_BYTES}).encode())
    assert caught.value.reason_code == "too_much_changed"
