import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.local.back_office.arithmetic import MAX_CHARACTERS, evaluate

Sum = tuple[str, float]

numbers = st.one_of(st.integers(0, 9_999), st.integers(0, 999_999).map(lambda cents: cents / 100)).map(lambda n: (str(n), float(n)))


def joined(parts: tuple[Sum, str, Sum]) -> Sum:
    (left, left_value), sign, (right, right_value) = parts
    values = {"+": left_value + right_value, "-": left_value - right_value, "*": left_value * right_value}
    value = values[sign] if sign in values else left_value / right_value if right_value else math.nan
    return f"({left} {sign} {right})", value


sums = st.recursive(numbers, lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(joined), max_leaves=6)


@given(sums)
def test_a_sum_is_what_its_tree_says(case: Sum) -> None:
    text, value = case
    if not math.isfinite(value):
        with pytest.raises(ValueError, match="division by zero"):
            evaluate(text)
    else:
        assert evaluate(text) == round(value, 2)


@pytest.mark.parametrize(
    ("text", "value"),
    [("2 + 3 * 4", 14.0), ("-(1.5 - 2)", 0.5), ("10 / 4", 2.5), (" 7 ", 7.0), ("1 - 2 - 3", -4.0), ("2623.69 - 1126.04", 1497.65)],
)
def test_signs_bind_as_they_do_on_paper(text: str, value: float) -> None:
    assert evaluate(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "()",
        "2 ** 8",
        "7 // 2",
        "1 (2)",
        "1 +",
        "1 2",
        "__import__('os')",
        "1e400",
        "1,2",
        "1\n+1",
        "0x10",
        "1 / 0",
        "...",
        "1..2",
        "(" * 250 + "1" + ")" * 100,
        "9" * 399,
        "9" * 300 + "*" + "9" * 20,
        "1+" * MAX_CHARACTERS + "1",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        evaluate(text)


def test_the_deepest_expression_allowed_is_worked_out() -> None:
    assert evaluate("-" * (MAX_CHARACTERS - 1) + "1") == -1.0


@given(st.text(max_size=60))
def test_no_text_raises_anything_but_a_refusal(text: str) -> None:
    try:
        evaluate(text)
    except ValueError:
        return


@given(st.text(alphabet="0123456789.+-*/() ", max_size=80))
def test_no_arithmetic_looking_text_raises_anything_but_a_refusal(text: str) -> None:
    try:
        assert math.isfinite(evaluate(text))
    except ValueError:
        return
