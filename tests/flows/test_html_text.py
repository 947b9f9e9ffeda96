"""Pages as Markdown, and Markdown with tags in it: nothing that a reader sees is lost, and lists, tables and code are such."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.html_text import plain

TAGS = ["p", "div", "h2", "ul", "ol", "li", "table", "tr", "td", "th", "pre", "br", "b", "code", "blockquote"]
SOUP = st.lists(st.tuples(st.sampled_from(["<{}>", "</{}>", "<{}>\n", " <{} class='x'>"]), st.sampled_from(TAGS)), max_size=40)
CODE = st.lists(
    st.sampled_from(
        [
            "Map<String, Integer> ttl = new HashMap<>();",
            "git clone <url>",
            '<div id="chat"></div>',
            "<script src='x'>",
            "</script><!--",
            "--> if a <b && c> d: pass",
            "&lt;p&gt;<br>&amp;",
            "  <table><tr><td>",
        ]
    ),
    min_size=1,
    max_size=4,
)
SPAN = st.sampled_from(["`git clone <url>`", "`<script>`", "``a `<p>` b``", "`Map<K, V>`", "`<!--`", "`&amp;`"])
TAGGED = st.sampled_from(
    [
        "{} <b>bold</b><br>{} end",
        "<p>One {}</p><div>{}</div>",
        "<ul><li>{}</li><li>{}</li></ul>",
        "| a {} | b<br>{} |",
        "<script>hidden('{}')</script> <h2>{}</h2>",
        "<!-- {} --> > {}<br/>",
        "<details><summary>{}</summary>",
    ]
)


@st.composite
def article(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A Markdown article with tags and code in it, and what of it is code."""
    parts, kept = ["# Article<br>"], list[str]()
    for kind in draw(st.lists(st.sampled_from(["fence", "indented", "span", "tags"]), max_size=8)):
        if kind == "fence":
            sign = draw(st.sampled_from(["```", "~~~", "````"]))
            parts.append("\n".join([sign + draw(st.sampled_from(["", "java"])), *draw(CODE), "", *draw(CODE), sign]))
            kept.append(parts[-1])
        elif kind == "indented":
            parts.append("\n".join(f"    {line}" for line in draw(CODE)))
            kept.append(parts[-1])
        elif kind == "span":
            parts.append(f"Type {draw(SPAN)}, {draw(SPAN)}<br> and {draw(SPAN)}.")
            kept += re.findall("``.*?``|`.*?`", parts[-1])
        else:
            parts.append(draw(TAGGED).format("one", "two"))
    return "\n\n".join(parts), kept


@settings(max_examples=200, deadline=None)
@given(article())
def test_code_in_a_markdown_article_stays_to_the_character_whatever_tags_stand_beside_it(made: tuple[str, list[str]]) -> None:
    body, kept = made
    shown = plain(body)
    for code in kept:
        assert code in shown
        shown = shown.replace(code, "", 1)
    assert not re.search(r"<br|<p>|<li>|<b>|<script|hidden|<!--", shown)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("Use Optional<Duration> or <timeout>,<br>not <b>this</b>.", "Use Optional<Duration> or <timeout>,\nnot this."),
        (
            "Never a <script> in a mail.<br>A --> B, no <!-- nor <style>",
            "Never a <script> in a mail.\nA --> B, no <!-- nor <style>",
        ),
        ("x<br>\n- ```\n  a<b> <br>\n  ```\n", "x\n\n- ```\n  a<b> <br>\n  ```\n"),
        ("<ul><li>see\n\n```\na <b>\n  c\n```\n</li></ul> x", "- see \n\n  ```\n  a <b>\n    c\n  ```"),
        ("only `<br>` here &amp; <there>", "only `<br>` here &amp; <there>"),
        ("a<br>see <https://shop.example/a> or <a@shop.example>", "a\nsee <https://shop.example/a> or <a@shop.example>"),
        ("1 < 2<br>&#" + "9" * 5_000 + ";", "1 < 2\n&#" + "9" * 5_000 + ";"),
    ],
)
def test_what_only_looks_like_a_tag_is_text(body: str, shown: str) -> None:
    assert read(body).startswith(shown.strip())


@settings(max_examples=200, deadline=None)
@given(SOUP)
def test_every_word_of_any_page_is_read_once(tags: list[tuple[str, str]]) -> None:
    page = "<p>" + "".join(f"{tag.format(name)}word{at} " for at, (tag, name) in enumerate(tags))
    assert sorted(re.findall(r"word\d+", plain(page))) == sorted(f"word{at}" for at in range(len(tags)))


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_no_text_fails(text: str) -> None:
    assert plain(f"<p>{text}") == plain(f"<p>{text}")


def test_a_page_that_never_ends_what_it_begins_is_read() -> None:
    page = "".join(f"<ul><li>word{at} " for at in range(5_000))
    assert re.findall(r"word\d+", plain(page)) == [f"word{at}" for at in range(5_000)]
    assert len(plain(page)) < 20 * len(page)


@pytest.mark.parametrize("around", ["x<br>{} end", "<p>{}<b>end</b>"])
@pytest.mark.parametrize(
    "unit",
    [
        "<a ",
        "<",
        "<!--",
        "-->",
        "<script>",
        "</script",
        "<a a='",
        "<a a=\"'",
        "` ",
        "<!doctype ",
        "<![CDATA[",
        "&#9",
        "<h2>",
        "</ul><ul>",
    ],
)
def test_what_begins_a_thousand_times_and_never_ends_is_read_once(around: str, unit: str) -> None:
    """A search of the rest for each beginning would take longer than a test may."""
    page = around.format(unit * (200_000 // len(unit)))
    text = plain(page)
    assert text.rstrip().endswith("end")
    assert len(text) < 2 * len(page)


def test_a_table_with_one_long_row_and_many_short_ones_is_not_filled_up() -> None:
    cells = 5_000
    page = f"<table><tr>{'<td>x' * cells}</tr>{'<tr><td>x' * cells}</table>"
    text = plain(page)
    assert text.count("x") == 2 * cells
    assert len(text) < 2 * len(page)


def read(page: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", plain(page)).strip()


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<ul>\n <li>one\n  more</li>\n <li>two</ul>", "- one more\n- two"),
        ("<ol><li><p>a</p><ul><li>b</li></ul></li><li>c</li></ol>", "1. a\n\n   - b\n2. c"),
        ("<ol><li>see<pre>x = 1\n\ny</pre></ol>", "1. see\n\n   ```\n   x = 1\n\n   y\n   ```"),
        ("<p>a<pre>```\n  b</pre>", "a\n\n````\n```\n  b\n````"),
        ("<table><tr><th>a<th>b<tr><td>1 | 2<td><p>x<p>y</table>", "| a | b |\n| --- | --- |\n| 1 \\| 2 | x y |"),
        ("<table><tr><td>a<td>b<tr><td>c</table>", "| a | b |\n| --- | --- |\n| c |"),
        ("<table><tr><td>a<tr><td>b<td>c</table>", "| a |  |\n| --- | --- |\n| b | c |"),
        ("<h2>\n    Cancel\n    <br>an order\n  </h2>\n  <p>\n    Press", "##  Cancel  an order \n\nPress"),
        ("<ul><li><h3>a</ul>\nb\nc", "- ### a\n\nb\nc"),
        ("<div>\n\n    <div>\n        a\n\n        b</div>\n</div>", "a\n\nb"),
        ("<my-app><o:p><svg><path d='M0'/></svg>a</o:p></my-app><br/>", "a"),
        ("<p title='a > b'>a<a href=x\">b</a></p>", "ab"),
        ("<table><tr><td><p>all of it<p>in a frame</table>", "all of it in a frame"),
        ("<div>x</li></td><td>y<li>z</div>", "x\ny\nz"),
        ("| a<br>b | c<br/>d |\n| e<br>", "| a b | c d |\n| e"),
        ("a<br>b<style>p {}</style>", "a\nb"),
        ("<head><!--[if lt IE 9]><script src='x'></script><![endif]--></head><p>seen</p><!-- x --><p>b</p>", "seen\n\nb"),
        ("<p>a</p><!-- when a <b --><p>seen</p><!-- x --><p>b</p>", "a\n\nseen\n\nb"),
        ("<p>a</p><!--[if !IE]><!--><p>seen</p><!--<![endif]--><p>b</p>", "a\n\nseen\n\nb"),
        ("<p align='center'>a</p>\nRun `git clone <url>`.<br>\n<br>", "a\n\nRun `git clone <url>`."),
    ],
)
def test_a_page_becomes_markdown(page: str, expected: str) -> None:
    assert read(page) == expected


def test_what_is_no_page_is_as_it_was() -> None:
    assert plain("if a < b: List<String>\r\n<placeholder>") == "if a < b: List<String>\n<placeholder>"
