"""Code, tables and lists in pieces: whole where they fit, and still code, a table or an item where they do not."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from flows.blocks import blocks, code_places, cut, headings
from flows.tokens import count_tokens, split

WORDS = st.lists(st.sampled_from(["fee", "card", "Grüße", "漢字", "end.", "x" * 30, "12.50", "a|b", "#"]), min_size=1, max_size=9)
PROSE = st.lists(WORDS.map(" ".join), min_size=1, max_size=4).map("\n".join)
PARSER = MarkdownIt("commonmark").enable("table")


@st.composite
def code(draw: st.DrawFn) -> str:
    sign = draw(st.sampled_from(["```", "~~~", "`````"]))
    body = draw(st.lists(WORDS.map(" ".join) | st.sampled_from(["", "    return", "# no heading", "| a |", "- b"]), max_size=12))
    return "\n".join([sign + draw(st.sampled_from(["", "py", " sh -x"])), *body, sign])


@st.composite
def table(draw: st.DrawFn) -> str:
    rows = draw(st.lists(WORDS, max_size=8))
    return "\n".join(["| what | fee |", "| --- | ---: |", *(f"| {row[0].replace('|', '')} | {len(row)} |" for row in rows)])


@st.composite
def items(draw: st.DrawFn, deep: int = 2) -> str:
    marker = draw(st.sampled_from(["- ", "* ", "1. "]))
    inner = st.one_of(PROSE, code(), *([items(deep=deep - 1)] if deep else []))
    texts = draw(st.lists(st.tuples(WORDS.map(" ".join), st.none() | inner), min_size=1, max_size=5))
    own = ["\n".join([text, *([after] if after else [])]) for text, after in texts]
    return "\n".join(marker + text.replace("\n", "\n" + " " * len(marker)) for text in own)


BLOCK = st.one_of(PROSE, code(), table(), items(), PROSE.map(lambda text: "> " + text.replace("\n", "\n> ")))
TEXTS = st.lists(BLOCK, min_size=1, max_size=5).map("\n\n".join)


def told(text: str) -> list[str]:
    """The lines of a text that say something."""
    return [line.strip() for line in text.split("\n") if line.strip()]


def is_within(part: list[str], whole: list[str]) -> bool:
    rest = iter(whole)
    return all(line in rest for line in part)


@settings(max_examples=120, deadline=None)
@given(TEXTS, st.integers(12, 80))
@example("- " * 40 + "x\n" * 30, 12)
@example("`````\na b c d e f g h i j k l m n o p q r s t u\n```", 24)
@example("> ```\n> a b c d e f g h i j k l m n o p q\n> # x\n", 12)
def test_every_piece_fits_and_no_word_is_lost_or_out_of_place(text: str, limit: int) -> None:
    pieces = cut(text, limit, overlap_tokens=0)
    assert all(count_tokens(piece) <= limit for piece in pieces)
    said = "".join("".join(pieces).split())
    letters = iter(said)
    assert all(letter in letters for letter in "".join(text.split()))


@settings(max_examples=120, deadline=None)
@given(TEXTS, st.integers(60, 120))
def test_every_line_that_fits_is_in_a_piece_whole_and_in_order(text: str, limit: int) -> None:
    lines = [line for line in told(text) if count_tokens(line) < limit // 3]
    assert is_within(lines, [line for piece in cut(text, limit, overlap_tokens=0) for line in told(piece)])


@settings(max_examples=120, deadline=None)
@given(st.text(max_size=400), st.integers(12, 80))
@example("1. a\n\n\n   > - ```x\n     y", 12)
def test_the_blocks_of_any_text_share_out_its_lines(text: str, limit: int) -> None:
    text = text.replace("\r", "\n")
    assert "".join(block.text for block in blocks(text)) == text + "\n"
    assert all(count_tokens(piece) <= limit for piece in cut(text, limit, overlap_tokens=3))
    lines = text.split("\n")
    assert all(heading.text.replace("\ufffd", "\0") in lines[heading.line] for heading in headings(text))


@settings(max_examples=120, deadline=None)
@given(st.lists(st.tuples(PROSE, code() | st.just("    indented\n\n    code")), max_size=4))
def test_code_stands_where_it_is_said_to(parts: list[tuple[str, str]]) -> None:
    text = "\n\n".join(f"{prose}\n\n{block}" for prose, block in parts)
    assert [text[begin:end] for begin, end in code_places(text)] == [block for _, block in parts]


@settings(max_examples=100, deadline=None)
@given(st.lists(PROSE, min_size=1, max_size=6).map("\n\n".join), st.integers(12, 60))
def test_prose_is_cut_as_it_is_without_a_parser(text: str, limit: int) -> None:
    assert cut(text, limit, overlap_tokens=limit // 8) == split(text, limit, overlap_tokens=limit // 8)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(PROSE, code()), min_size=1, max_size=3), st.integers(40, 90))
def test_code_that_fits_is_whole_in_one_piece(parts: list[tuple[str, str]], limit: int) -> None:
    text = "\n\n".join(f"{before}\n\n{block}" for before, block in parts)
    pieces = cut(text, limit, overlap_tokens=limit // 8)
    for _, block in parts:
        if count_tokens(block) <= limit:
            assert any(block in piece for piece in pieces)


@settings(max_examples=100, deadline=None)
@given(PROSE, code(), PROSE, st.integers(30, 60))
def test_code_that_is_cut_is_code_in_each_piece_and_reads_as_before(before: str, block: str, after: str, limit: int) -> None:
    opening, *body, sign = block.split("\n")
    found = [
        token
        for piece in cut(f"{before}\n\n{block}\n\n{after}", limit, overlap_tokens=0)
        for token in PARSER.parse(piece)
        if token.type == "fence"
    ]
    assert {f"{token.markup}{token.info}" for token in found} == {opening}
    assert {token.markup for token in found} == {sign}
    whole = [line for line in body if line.strip()]
    if all(count_tokens(line) < limit // 2 for line in body):
        assert [line for token in found for line in token.content.split("\n") if line.strip()] == whole


@settings(max_examples=100, deadline=None)
@given(PROSE, table(), st.integers(36, 60))
def test_a_table_that_is_cut_keeps_its_head_over_each_piece_and_its_rows_whole(before: str, block: str, limit: int) -> None:
    head, rule, *rows = block.split("\n")
    pieces = [told(piece) for piece in cut(f"{before}\n\n{block}", limit, overlap_tokens=0)]
    for piece in pieces:
        if set(rows) & set(piece):
            first = next(at for at, line in enumerate(piece) if line in rows)
            assert piece[first - 2 : first] == [head, rule]
    assert [line for piece in pieces for line in piece if line in rows] == rows


def test_a_list_is_cut_between_items_and_an_item_goes_with_what_is_below_it() -> None:
    first = "1. open the page\n   - as a guest\n   - or signed in"
    second = "2. press the button\n\n   ```sh\n   sluice up\n   ```"
    third = "3. wait for the mail"
    text = f"To begin:\n\n{first}\n{second}\n{third}"
    assert [piece.strip("\n") for piece in cut(text, 20, overlap_tokens=4)] == [f"To begin:\n\n{first}", f"{second}\n{third}"]


def test_an_item_that_is_too_long_is_cut_between_its_blocks_before_within_them() -> None:
    inner = [f"  - {number} is {'very ' * 4}long" for number in ("one", "two", "three")]
    text = "\n".join(["- intro", "- parent", *inner, "- last"])
    assert [piece.rstrip() for piece in cut(text, 15, overlap_tokens=0)] == [
        "\n".join(["- intro", "- parent", inner[0]]),
        "\n".join(inner[1:2]),
        "\n".join([inner[2], "- last"]),
    ]


def test_a_row_that_is_too_long_for_its_head_is_cut_below_it() -> None:
    text = f"| a | b |\n|---|---|\n| 1 | {'word ' * 40}|\n| 2 | x |"
    pieces = cut(text, 30, overlap_tokens=0)
    assert len(pieces) > 2
    assert all(piece.startswith("| a | b |\n|---|---|\n") for piece in pieces)
    assert sum(piece.count("word") for piece in pieces) == 40


def test_code_that_never_ends_is_closed_in_each_piece() -> None:
    pieces = cut("- see\n\n  ~~~ini\n" + "".join(f"  key{number} = {number}\n" for number in range(12)), 25, overlap_tokens=0)
    assert len(pieces) > 2
    assert all(re.fullmatch(r"  ~~~ini\n(  key\d+ = \d+\n)+  ~~~", piece.rstrip()) for piece in pieces[1:])


@pytest.mark.parametrize(("head", "end"), [("```py\n", "```"), ("| a | b |\n|---|---|\n", "")])
def test_what_has_to_be_cut_begins_where_it_is_announced(head: str, end: str) -> None:
    rows = "".join(f"| row{number} | x |\n" for number in range(20))
    first, second, *_ = cut(f"Do this:\n\n{head}{rows}{end}", 40, overlap_tokens=0)
    assert first.startswith(f"Do this:\n\n{head}| row0 |")
    assert second.startswith(head)
    long = "word " * 30
    assert cut(f"{long}\n\n{head}{rows}{end}", 40, overlap_tokens=0)[0].strip() == long.strip()


def test_code_under_a_line_that_takes_half_the_room_is_cut_as_text() -> None:
    text = "".join(["```", "info " * 20, "\n", "line\n" * 30, "```"])
    assert all(count_tokens(piece) <= 30 for piece in cut(text, 30, overlap_tokens=0))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# One\n text\n  ### Two ###\n#three\n#\n    # four", [(0, 1, "One"), (2, 3, "Two")]),
        ("````\n```\n# code\n````\n# Using C#", [(4, 1, "Using C#")]),
        ("- item\n  # of the item\n> # quoted\n\n# Own", [(4, 1, "Own")]),
        ("<placeholder>\n# After a tag\n[x]: y\n# After a link", [(1, 1, "After a tag"), (3, 1, "After a link")]),
    ],
)
def test_headings_are_those_outside_of_other_blocks(text: str, found: list[tuple[int, int, str]]) -> None:
    assert [(heading.line, heading.level, heading.text) for heading in headings(text)] == found


def test_a_long_text_is_read_once() -> None:
    """A list of many items, and deep ones, cost no more than their lines."""
    text = "\n".join(f"{'  ' * (number % 30)}- item {number}" for number in range(3_000))
    assert re.findall(r"\d+", "".join(cut(text, 192, overlap_tokens=0))) == [str(number) for number in range(3_000)]
