"""Pages as Markdown: nothing that a reader sees is lost, and lists, tables and code are such."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.html_text import plain

TAGS = ["p", "div", "h2", "ul", "ol", "li", "table", "tr", "td", "th", "pre", "br", "b", "code", "blockquote"]
SOUP = st.lists(st.tuples(st.sampled_from(["<{}>", "</{}>", "<{}>\n", " <{} class='x'>"]), st.sampled_from(TAGS)), max_size=40)


@settings(max_examples=200, deadline=None)
@given(SOUP)
def test_every_word_of_any_page_is_read_once(tags: list[tuple[str, str]]) -> None:
    page = "<p>" + "".join(f"{tag.format(name)}word{at} " for at, (tag, name) in enumerate(tags))
    assert sorted(re.findall(r"word\d+", plain(page))) == sorted(f"word{at}" for at in range(len(tags)))


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_no_text_fails_and_each_reads_the_same_again(text: str) -> None:
    assert plain(f"<p>{text}") == plain(f"<p>{text}")


def test_a_page_that_never_ends_what_it_begins_is_read() -> None:
    page = "".join(f"<ul><li>word{at} " for at in range(5_000))
    assert re.findall(r"word\d+", plain(page)) == [f"word{at}" for at in range(5_000)]
    assert len(plain(page)) < 20 * len(page)


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
        ("<table><tr><td>a<td>b<tr><td>c</table>", "| a | b |\n| --- | --- |\n| c |  |"),
        ("<table><tr><td><p>all of it<p>in a frame</table>", "all of it in a frame"),
        ("<div>x</li></td><td>y<li>z</div>", "x\ny\nz"),
        ("| a<br>b | c<br/>d |\n| e<br>", "| a b | c d |\n| e"),
        ("a<br>b<style>p {}</style>", "a\nb"),
    ],
)
def test_a_page_becomes_markdown(page: str, expected: str) -> None:
    assert read(page) == expected


def test_what_is_no_page_is_as_it_was() -> None:
    assert plain("if a < b: List<String>\r\n<placeholder>") == "if a < b: List<String>\n<placeholder>"
