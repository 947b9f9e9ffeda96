"""Text that can be stored everywhere, and old payloads brought to today's shape."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.errors import MalformedError, UnknownVersionError
from topics.text import MAX_CLUSTER_CHARS, MAX_LEVELS, clean_json, clean_text, shorten
from topics.upcasts import Step, upcast

anything = st.text(st.characters(codec=None, categories=None))


@given(anything)
def test_clean_text_can_be_encoded_and_is_left_alone_the_second_time(text: str):
    clean = clean_text(text)
    assert clean.encode().decode() == clean == clean_text(clean)
    assert "\x00" not in clean
    assert [a for a in text if a != "\x00" and not 0xD800 <= ord(a) <= 0xDFFF] == [
        b for a, b in zip(text.replace("\x00", ""), clean, strict=True) if a == b
    ]


@given(st.recursive(anything, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(anything, inner, max_size=3)))
def test_clean_json_reaches_every_string(value: Any):
    repr(clean_json(value)).encode()


FAMILY = "\N{WOMAN}\u200d\N{WOMAN}\u200d\N{GIRL}"
WAVE = "\N{WAVING HAND SIGN}\N{EMOJI MODIFIER FITZPATRICK TYPE-4}"
FLAG = "\N{REGIONAL INDICATOR SYMBOL LETTER D}\N{REGIONAL INDICATOR SYMBOL LETTER E}"
ACCENTED = "e\N{COMBINING ACUTE ACCENT}"


@given(st.lists(st.sampled_from([FAMILY, WAVE, FLAG, ACCENTED, "a", " ", "日"]), max_size=12), st.integers(1, 60))
def test_a_text_is_cut_between_what_is_read_as_one_character(clusters: list[str], limit: int):
    """Case 4: a family of five code points stays together wherever the cut falls."""
    text = "".join(clusters)
    cut = shorten(text, limit)
    ends = [len("".join(clusters[:count])) for count in range(len(clusters) + 1)]
    fitting = max(end for end in ends if end <= limit)
    assert cut == (text[:fitting] or text[:limit])


def test_a_cluster_without_an_end_is_cut_all_the_same():
    assert len(shorten("a" + "\N{COMBINING ACUTE ACCENT}" * 500, 100)) == 100
    assert len(shorten("\u200d" * 500, 100)) == 100
    assert MAX_CLUSTER_CHARS < 100


def test_json_may_not_be_deeper_than_those_who_walk_it():
    assert clean_json(nested(MAX_LEVELS)) == nested(MAX_LEVELS)
    with pytest.raises(MalformedError) as caught:
        clean_json(nested(MAX_LEVELS + 1))
    assert caught.value.reason_code == "too_deep"


def nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


STEPS: dict[tuple[str, int], Step] = {
    ("t", 1): lambda data: {"names": [data["name"]]},
    ("t", 2): lambda data: {"first": data["names"][0]},
}


def test_steps_run_one_after_another_up_to_the_current_version():
    def bring(data: dict[str, Any], version: int) -> dict[str, Any]:
        return upcast(data, event_type="t", version=version, current=3, steps=STEPS)

    assert bring({"name": "a"}, 1) == bring({"names": ["a"]}, 2) == bring({"first": "a"}, 3) == {"first": "a"}


@pytest.mark.parametrize("version", [0, 4, 999_999])
def test_a_version_without_a_step_is_unknown(version: int):
    with pytest.raises(UnknownVersionError):
        upcast({}, event_type="t", version=version, current=3, steps=STEPS)


@pytest.mark.parametrize("data", [{}, {"names": 5}, {"names": []}, {"names": {}}])
def test_an_old_payload_that_is_not_what_its_version_promises_is_malformed(data: dict[str, Any]):
    """P10: a step that trips over its input must not stop the partition."""
    with pytest.raises(MalformedError) as caught:
        upcast(data, event_type="t", version=2, current=3, steps=STEPS)
    assert caught.value.reason_code == "bad_payload"
