import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.infra.test_redaction import CASE_40
from workers.masking import masked_facts, masked_text, masked_value


def test_a_masked_value_shows_its_fields_and_nothing_that_they_say():
    value = {"ticket_id": "T-1", "body": "Jane Roe", "n": 3, "flags": [True], "of": {"x": None}, "ok": False}
    assert masked_value(json.dumps(value).encode()) == {
        "ticket_id": "text of 3 characters",
        "body": "text of 8 characters",
        "n": "number",
        "flags": "list of 1",
        "of": {"x": "null"},
        "ok": "true or false",
    }
    assert masked_value(b"Jane Roe") == "8 bytes, not JSON"
    assert masked_value(None) is None


@given(
    st.recursive(
        st.text() | st.integers() | st.none() | st.floats(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_any_json_can_be_masked(value):
    json.dumps(masked_value(json.dumps(value).encode()))


@pytest.mark.parametrize("text", CASE_40)
def test_keys_headers_and_what_is_said_of_an_edit_are_redacted(text):
    assert text not in str(masked_text(f"acme/{text}".encode()))
    assert text not in json.dumps(masked_facts({"diff": [text], text: 1}))
    assert text not in json.dumps(masked_value(json.dumps({text: 1}).encode()))
