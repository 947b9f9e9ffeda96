"""Articles in pieces: nothing lost, nothing too long, nothing cut inside a character."""

import re

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.chunking import NAME_TOKENS, OVERLAP_TOKENS, PASSAGE_TOKENS, chunk
from flows.tokens import clip, count_tokens

FAMILY = "👩‍👩‍👧"
CLUSTERS = [
    FAMILY,
    "👍🏽",
    "🏳️‍🌈",
    "🇩🇪",
    "e\u0301",
    "ש\u05b0",
    "각",
    "❤️",
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "a",
    "漢",
]
WORDS = st.sampled_from(["refund", "card", "Grüße", "שלום", "\u202eabc\u202c", "x" * 300, "end.", "漢字漢字", *CLUSTERS])
GAPS = st.sampled_from([" ", " ", " ", "", "\n", "\n\n", "\r\n", "\t", "  "])
BODIES = st.lists(st.tuples(WORDS, GAPS), max_size=120).map(lambda parts: "".join(word + gap for word, gap in parts))


def visible(text: str) -> str:
    return re.sub(r"\s", "", text)


@settings(max_examples=150, deadline=None)
@given(BODIES)
def test_every_visible_character_is_in_a_passage_in_order(body: str) -> None:
    pieces = chunk("", body, passage_tokens=40, overlap_tokens=0)
    assert visible("".join(piece.text for piece in pieces)) == visible(body)
    assert [piece.ordinal for piece in pieces] == list(range(len(pieces)))


@settings(max_examples=150, deadline=None)
@given(BODIES, st.integers(20, 80))
def test_no_passage_is_longer_than_allowed(body: str, limit: int) -> None:
    for piece in chunk("Title", body, passage_tokens=limit, overlap_tokens=limit // 8):
        assert count_tokens(piece.text) <= limit
        assert piece.text.strip()


@settings(max_examples=150, deadline=None)
@given(BODIES, st.integers(12, 60))
def test_no_character_is_cut(body: str, limit: int) -> None:
    body = body.replace("\r\n", "\n")
    clusters = set(regex.findall(r"\X", body))
    for piece in [chunk_.text for chunk_ in chunk("", body, passage_tokens=limit, overlap_tokens=3)] + [clip(body, limit)]:
        assert set(regex.findall(r"\X", piece)) <= clusters


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=300), st.text(max_size=2_000))
def test_any_text_gives_the_same_passages_again(title: str, body: str) -> None:
    assert chunk(title, body) == chunk(title, body)


@settings(max_examples=100, deadline=None)
@given(BODIES, st.integers(1, 60))
def test_a_clip_is_a_beginning_and_short_enough(text: str, limit: int) -> None:
    short = clip(text, limit)
    assert text.startswith(short)
    assert count_tokens(short) <= max(limit, 8)


@pytest.mark.parametrize("cluster", [cluster for cluster in CLUSTERS if len(cluster) > 1])
@pytest.mark.parametrize("before", range(8))
def test_a_long_cluster_is_whole_wherever_the_cut_falls(cluster: str, before: int) -> None:
    body = "x" * before + cluster * 40
    text = "".join(piece.text for piece in chunk("", body, passage_tokens=12, overlap_tokens=0))
    assert text == body
    for piece in chunk("", body, passage_tokens=12, overlap_tokens=0):
        assert set(regex.findall(r"\X", piece.text)) <= {"x", cluster}


def test_headings_make_sections_with_their_path() -> None:
    body = "a b c d\n# Refunds\ne f g h\n## Cards ##\ni j k l\n### Deep\nm n o p\n## Cash\nq r s t"
    assert [(piece.title_path, piece.text) for piece in chunk("Refunds", body, passage_tokens=4, overlap_tokens=0)] == [
        ("Refunds", "a b c d"),
        ("Refunds", "e f g h"),
        ("Refunds > Cards", "i j k l"),
        ("Refunds > Cards > Deep", "m n o p"),
        ("Refunds > Cash", "q r s t"),
    ]


def test_short_sections_share_a_passage_that_keeps_their_headings() -> None:
    body = "intro\n# Cards\ncards\n## Deep\ndeep\n# Cash\ncash"
    assert [(piece.title_path, piece.text) for piece in chunk("Refunds", body)] == [
        ("Refunds", "intro\n\n# Cards\ncards\n\n## Deep\ndeep\n\n# Cash\ncash")
    ]
    below = "# Cards\n## Lost\ncall\n## Stolen\ncall at once"
    assert [(piece.title_path, piece.text) for piece in chunk("Help", below)] == [
        ("Help > Cards", "# Lost\ncall\n\n# Stolen\ncall at once")
    ]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 40)), max_size=12), st.integers(20, 60))
def test_sections_share_a_passage_only_while_they_fit_and_every_word_stays(shape: list[tuple[int, int]], limit: int) -> None:
    sections = [(level, f"h{at}", [f"w{at}"] * words) for at, (level, words) in enumerate(shape)]
    body = "\n".join(f"{'#' * level} {name}\n{' '.join(words)}" for level, name, words in sections)
    pieces = chunk("", body, passage_tokens=limit, overlap_tokens=0)
    assert all(count_tokens(piece.text) <= limit for piece in pieces)
    read = [word for piece in pieces for word in piece.text.split() if word.startswith("w")]
    assert read == [word for _, _, words in sections for word in words]
    for at, (_, name, _) in enumerate(sections):
        first = next(piece for piece in pieces if f"w{at}" in piece.text)
        assert name in first.title_path or f"# {name}" in first.text


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9), st.integers(1, 90)), max_size=12), st.integers(20, 60))
def test_every_heading_is_in_a_passage_or_its_path(shape: list[tuple[int, int, int]], limit: int) -> None:
    body = "\n".join(f"{'#' * level} h{at}z{' long' * long}\n{'word ' * words}" for at, (level, words, long) in enumerate(shape))
    pieces = chunk("", body, passage_tokens=limit, overlap_tokens=0)
    shown = "\n".join(f"{piece.title_path}\n{piece.text}" for piece in pieces)
    assert [at for at in range(len(shape)) if f"h{at}z" not in shown] == []
    assert all(count_tokens(piece.title_path) <= 3 * NAME_TOKENS + 2 for piece in pieces)


def test_a_heading_with_nothing_below_it_is_text() -> None:
    body = "# Phone: 555-0100\n# Contact\n## Mail: help@shop.example\n# Hours\nnine to five"
    assert [(piece.title_path, piece.text) for piece in chunk("Contact", body)] == [
        ("Contact", "# Phone: 555-0100\n\n## Mail: help@shop.example\n\n# Hours\nnine to five")
    ]


def test_no_long_name_is_repeated_over_every_passage() -> None:
    body = f"# {'heading ' * 3_750}\n# a{' ' * 30_000}b\n{' '.join(f'w{at}' for at in range(5_000))}"
    pieces = chunk("title " * 5_000, body)
    assert sum(piece.text.count("heading") for piece in pieces) >= 3_750
    assert max(len(piece.title_path) for piece in pieces) < 8 * NAME_TOKENS
    assert pieces[-1].title_path.startswith("title title")
    assert pieces[-1].title_path.endswith(" > a b")


def test_a_megabyte_of_spaces_is_cut_in_one_go() -> None:
    """Cut behind each space, it would take longer than a test may."""
    pieces = chunk("T", f"{'word ' * 150}{' ' * 1_000_000}{'word ' * 300}", overlap_tokens=0)
    assert sum(piece.text.count("word") for piece in pieces) == 450
    assert sum(len(piece.text) for piece in pieces) <= 1_000_000 + 450 * 5


KEY_LINES = [f"{'MIIEabc0' * 7}{at:08}" for at in range(25)]
PEM = "\n".join(["-----BEGIN RSA PRIVATE KEY-----", *KEY_LINES, "-----END RSA PRIVATE KEY-----"])
TOKEN = f"eyJ{'abcDEF0123' * 90}"


@pytest.mark.parametrize(
    "body",
    [
        f"Use it.\n\n{PEM}\n\nThen restart.",
        f"Use it.\n\n```\n{PEM}\n```\n\nThen restart.",
        f"<p>Use it.</p><pre>{PEM.replace(' ', '&#32;')}</pre><p>Then restart.</p>",
        f"Send {TOKEN} with it.\nThen restart.",
    ],
)
def test_a_key_longer_than_a_passage_is_in_none(body: str) -> None:
    pieces = chunk(f"The key {TOKEN}", body, passage_tokens=48)
    shown = "\n".join(f"{piece.title_path}\n{piece.text}" for piece in pieces)
    assert [line for line in [*KEY_LINES, "abcDEF0123"] if line in shown] == []
    assert "Then restart." in shown
    assert shown.startswith("The key ⟨secret removed⟩")


def test_an_article_goes_on_behind_what_only_names_how_a_key_begins() -> None:
    """P11, and nothing is lost for it: the lines of a key that was cut off go, what people read stays."""
    head, *_ = PEM.split("\n", 1)
    body = f"The file begins with {head}. Paste all of it.\n\n{head}\n{KEY_LINES[0]}\n{KEY_LINES[1][:30]}\n\nThen press Save."
    text = "\n".join(piece.text for piece in chunk("Keys", body))
    assert "Paste all of it." in text
    assert "Then press Save." in text
    assert KEY_LINES[0] not in text
    assert KEY_LINES[1][:30] not in text


OPEN = "-----BEGIN PRIVATE KEY-----"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIBABC\n-----END CERTIFICATE-----"


@pytest.mark.parametrize("behind", [CERTIFICATE, PEM, f"{OPEN}\n{KEY_LINES[0]}"])
def test_what_only_names_how_a_key_begins_is_not_closed_by_the_end_of_another(behind: str) -> None:
    text = "\n".join(piece.text for piece in chunk("Keys", f"It begins with {OPEN}. Never mail it.\n\n5 days.\n\n{behind}\nend"))
    assert all(part in text for part in ("Never mail it.", "5 days.", "end"))
    assert KEY_LINES[0] not in text


@pytest.mark.parametrize(
    "body",
    [
        f"> {OPEN}\n> {KEY_LINES[0]}\n> {KEY_LINES[1]}\n\nafter",
        f"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n{KEY_LINES[0]}\n\nafter",
        f'"private_key": "{OPEN}\\n{KEY_LINES[0]}\\n{KEY_LINES[1]}\\n", after',
    ],
)
def test_the_lines_of_a_key_without_an_end_go_however_they_are_written(body: str) -> None:
    """P11."""
    text = "\n".join(piece.text for piece in chunk("Keys", body))
    assert "after" in text
    assert not [line for line in KEY_LINES[:2] if line in text]


def test_a_comment_in_a_code_block_is_no_heading() -> None:
    body = "```sh\n# not a heading\n~~~\n# nor this\n```\n# Heading\ntext"
    pieces = chunk("T", f"{body} {'word ' * 20}", passage_tokens=24, overlap_tokens=0)
    assert {piece.title_path for piece in pieces} == {"T", "T > Heading"}


def test_html_is_read_as_text_with_headings() -> None:
    body = "<h1>Big</h1><p>One &amp; two</p><script>alert(1)</script><h2>Small</h2><ul><li>a<li>b</ul>x<br>y"
    pieces = chunk("T", body, passage_tokens=6, overlap_tokens=0)
    assert [(piece.title_path, piece.text.split()) for piece in pieces] == [
        ("T > Big", ["One", "&", "two"]),
        ("T > Big > Small", ["-", "a", "-", "b", "x", "y"]),
    ]


def test_code_and_tables_of_a_page_are_cut_as_those_of_markdown() -> None:
    rows = "".join(f"<tr><td>plan {number}</td><td>{number} &euro;</td></tr>" for number in range(9))
    code = "".join(f"step{number}()\n" for number in range(12))
    body = f"<p>Fees</p><table><tr><th>Plan</th><th>Fee</th></tr>{rows}</table><pre><code>{code}</code></pre>"
    texts = [piece.text for piece in chunk("T", body, passage_tokens=50, overlap_tokens=0)]
    assert all("| Plan | Fee |\n| --- | --- |\n" in text for text in texts if "| plan" in text)
    assert all(text.count("```") == 2 for text in texts if "step" in text)
    assert len(texts) > 3
    read = re.findall(r"step\d+|plan \d+", "\n".join(texts))
    assert read == [*(f"plan {number}" for number in range(9)), *(f"step{number}" for number in range(12))]


def test_text_with_angle_brackets_is_not_taken_for_html() -> None:
    body = "if a < b and c > d use List<String> or <placeholder>"
    assert [piece.text for piece in chunk("T", body)] == [body]


def test_a_body_without_text_leaves_the_title() -> None:
    assert [piece.text for piece in chunk("Title", " \n")] == ["Title"]
    assert chunk("", "") == []


def test_paragraphs_stay_together_when_they_fit() -> None:
    first, second = ("word " * 120).strip(), ("other " * 100).strip()
    assert [piece.text for piece in chunk("T", f"{first}\n\n{second}")] == [first, second]


def test_the_overlap_is_little() -> None:
    body = " ".join(f"w{number}" for number in range(2_000))
    pieces = chunk("T", body)
    words = sum(len(piece.text.split()) for piece in pieces)
    assert 2_000 <= words < 2_000 * 1.15
    assert OVERLAP_TOKENS < PASSAGE_TOKENS / 8


def test_right_to_left_marks_and_joiners_stay() -> None:
    body = f"\u202eשלח\u202c {FAMILY} Grüße\u200d"
    assert [piece.text for piece in chunk("T", body)] == [body]
