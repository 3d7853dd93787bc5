"""The text of web pages: the main content, in classes; any bytes, any encoding, however broken."""

import re
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simsql import DEFAULT_RECIPE, Recipe, simhash
from simsql.fingerprint import html_parts, simhash_html, simhash_parts, visible_text

STORY = [
    "Bees make honey of the nectar that they gather from the flowers of the meadow, and keep it in combs of wax.",
    "A colony has one queen, some hundred drones and many thousand workers, who live for six weeks in the summer.",
    "In winter they form a cluster around the queen, and shiver to keep themselves warm until the spring comes.",
]
PARAGRAPHS = "".join(f"<p>{paragraph}</p>" for paragraph in STORY)
HONEY = "Honey is nectar that workers have dried by fanning it with their wings until it keeps for years."
MENU = "".join(f'<li><a href="/{number}">Menu entry {number}</a></li>' for number in range(20))
PAGE = f"""<!doctype html>
<html><head><title>On bees &amp; wasps</title><style>p {{ color: styled }}</style>
<script>let scripted = "<p>x";</script>
<script type="application/ld+json">{{"@type": "Article", "articleBody": "{"linked data " * 40}"}}</script>
</head><body><nav><ul>{MENU}</ul></nav><article><h1>Bees and <em>ho</em>ney</h1>{PARAGRAPHS}
<h2>Honey</h2><p>{HONEY}</p><script>scripted()</script></article>
<aside><a href="/buy">Buy advertised things</a></aside>
<footer><p>Copyright by the publisher, all rights reserved</p></footer></body></html>"""


def words(texts):
    return re.findall(r"\w+", " ".join(texts).lower())


def test_the_main_content_in_its_classes():
    assert html_parts(PAGE) == [
        ("On bees & wasps", "title"),
        ("Bees and honey\nHoney", "heading"),
        ("\n".join([*STORY, HONEY]), "text"),
    ]


def test_boilerplate_does_not_count():
    other = PAGE.replace(MENU, "<li><a href='/x'>Another menu</a></li>").replace(
        "advertised things", "something else"
    )
    other = other.replace("Copyright by the publisher", "Published by somebody").replace("scripted", "programmed")
    assert other != PAGE
    assert simhash_html(other) == simhash_html(PAGE)
    assert simhash_html(PAGE.replace("wax", "paper")) != simhash_html(PAGE)


def test_classes_have_the_weights_of_the_recipe():
    parts = html_parts(PAGE)
    assert simhash_html(PAGE) == simhash_parts([(text, 1) for text, _ in parts])
    recipe = Recipe(class_weights=(("body", 9), ("title", 50)))
    expected = simhash_parts([(text, 50 if name == "title" else 1) for text, name in parts], recipe)
    assert simhash_html(PAGE, recipe) == expected != simhash_html(PAGE)


@pytest.mark.parametrize(
    ("page", "parts"),
    [
        ("", []),
        (" \n ", []),
        ("<!-- nothing -->", []),
        ("<script>alert(1)</script><style>p {}</style><noscript>no script</noscript>", []),
        ("<title>Only a title</title>", [("Only a title", "title")]),
        ("plain text", [("plain text", "text")]),
        ("<p>one <b>t</b>wo<br>three<p>fo<i>ur", [("one two\nthree\nfour", "text")]),
        ("<p>a</p></div></p><p>b<td>c", [("a\nb\nc", "text")]),
        ("<h3>A heading</h3>", [("A heading", "heading")]),
        ("a<!-- not this -->b", [("ab", "text")]),
        ("a\0b", [("ab", "text")]),
        ('<?xml version="1.0" encoding="iso-8859-1"?><html><body>é</body></html>', [("é", "text")]),
        ("<p>a\ud800b", [("a?b", "text")]),
        ("<table><tr><td>one<td>two</table>", [("one\ntwo", "text")]),
    ],
)
def test_pages_of_little(page, parts):
    assert html_parts(page) == parts


@pytest.mark.parametrize("title", ["", "<title>A title</title>"])
@pytest.mark.parametrize("tags", ["nav", "footer", "aside", "header"])
def test_a_page_of_boilerplate_alone_is_taken_as_a_whole(title, tags):
    sentence = "Nothing but this is on the page"
    for times in (1, 20):
        parts = {name: text for text, name in html_parts(f"{title}<{tags}><p>{sentence}</p></{tags}>" * times)}
        assert set(words([sentence])) <= set(words([parts["text"]]))


@pytest.mark.parametrize(
    ("declaration", "encoding"),
    [
        ("", "utf-8"),
        ("", "cp1252"),
        ("", "utf-8-sig"),
        ("", "utf-16"),
        ("<meta charset=utf-8>", "utf-8"),
        ("<META CHARSET = 'windows-1251'>", "cp1251"),
        ('<meta http-equiv="Content-Type" content="text/html; charset=koi8-r">', "koi8-r"),
        ('<?xml version="1.0" encoding="windows-1253"?>', "cp1253"),
        ("<meta charset=iso-8859-1>", "cp1252"),
        ("<meta charset=gb2312>", "gb18030"),
        ("<meta charset=shift_jis>", "cp932"),
        ("<meta charset=utf-16>", "utf-8"),
        ("<meta charset=klingon>", "utf-8"),
        ("<meta charset=hex>", "utf-8"),
        ("<meta charset=idna>", "utf-8"),
    ],
)
def test_bytes_of_every_encoding(declaration, encoding):
    letters = {"cp1251": "Пчёлы", "koi8-r": "Пчёлы", "cp1253": "μέλισσες", "gb18030": "蜜蜂", "cp932": "蜜蜂"}
    text = letters.get(encoding, "Bücher – “naïve”")
    page = f"{declaration}<p>{text}</p>".encode(encoding)
    assert html_parts(page) == [(text, "text")]


def test_bytes_that_violate_their_encoding():
    assert html_parts(b"<meta charset=utf-8><p>a \xff b") == [("a \ufffd b", "text")]
    assert html_parts(b"\x81 and") == [("\ufffd and", "text")]


@pytest.mark.parametrize("tag", ["div", "b", "p", "ul><li"])
def test_what_is_nested_deeply_is_not_lost(tag):
    page = (
        f"<title>t</title><script>scripted</script>{f'<{tag}>' * 5000}inside &amp; {f'</{tag}>' * 5000}<p>behind"
    )
    found = words(text for text, _ in html_parts(page))
    assert [word for word in found if word != "t"] == ["inside", "behind"]


@pytest.mark.parametrize(
    "piece", ["<script>x", "<style >x", "<!-- x", "<x ", "</script", "<script>x</script ", "< x"]
)
def test_what_is_nested_deeply_and_never_closed_takes_no_square_of_the_time(piece):
    started = time.perf_counter()
    html_parts("<b>" * 5000 + "inside" + piece * 50_000)
    assert time.perf_counter() - started < 5


def test_what_is_nested_deeply_ends_as_for_browsers():
    for page, expected in {
        "1 < 2 > <b title='x'>3": ["1 < 2 > 3"],
        "a<script>b</script x>c<SCRIPT>d</Script\n>e": ["a c e"],
        "a<scripted>b</scripted><script-x>c": ["a b c"],
        "a<!-- <b>c --> d<!-- e": ["a d"],
        "a<style>b</styles><p>c": ["a"],
        "a <b": ["a"],
    }.items():
        assert [text for text, _ in html_parts("<b>" * 5000 + page)] == expected


TAGS = [
    "p",
    "div",
    "h1",
    "head",
    "body",
    "html",
    "table",
    "tr",
    "td",
    "li",
    "ul",
    "a href=x",
    "b",
    "q",
    "br",
    "nav",
]
TAGS += ["article", "main", "pre", "img", "img src=picture", "svg", "form", "x-y"]
PIECES = st.sampled_from([f"<{tag}>" for tag in TAGS] + [f"</{tag.split()[0]}>" for tag in TAGS] + [STORY[0]] * 20)


@settings(deadline=None, max_examples=50)
@given(st.lists(PIECES, min_size=4).map("".join))
def test_longer_pages_of_any_structure_are_read(page):
    parts = html_parts(page)
    for text, name in parts:
        assert set(words([text])) <= set(words([STORY[0]]))
        assert name in ("title", "heading", "text")


@settings(deadline=None)
@given(st.text(st.sampled_from("<>/ =\"'!-&;#abp\0é\n\ud800"), max_size=60) | st.binary(max_size=40))
def test_whatever_is_written_is_read(page):
    for text, name in html_parts(page):
        assert text.strip() == text != ""
        assert name in ("title", "heading", "text")
    simhash_html(page)


@settings(deadline=None)
@given(st.lists(st.sampled_from(["one", "two", "three", "Füße", "蜜蜂"]), min_size=1))
def test_text_without_markup_has_the_fingerprint_of_the_text(tokens):
    assert simhash_html(f"<p>{' '.join(tokens)}</p>") == simhash(" ".join(tokens), DEFAULT_RECIPE)


def test_wrong_arguments():
    with pytest.raises(TypeError, match="a page must be str or bytes, not NoneType"):
        simhash_html(None)


def test_without_the_extra():
    """In a process in which the package cannot be imported."""
    code = (
        "import sys; sys.modules['trafilatura'] = None\n"
        "from simsql.fingerprint import simhash_html\n"
        "try: simhash_html('a')\n"
        "except ModuleNotFoundError as error: print(error)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.endswith("needs the package trafilatura: pip install trafilatura lxml-html-clean\n")


def test_the_package_is_imported_when_it_is_needed():
    code = "import sys, simsql; print({'trafilatura', 'lxml'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("a plain text, 1 &lt; 2", "a plain text, 1 < 2"),
        ("<h1>Title</h1><p>one<b>wo</b>rd and<br>more</p><!-- no -->", "Title\noneword and\nmore"),
        ("<script>no</script><style>no</STYLE>yes<template>no", "yes"),
        ("<a title='a > b' href=\"x>y\">linked</a> a < b", "linked a < b"),
        ('<p title=">never closed', '">never closed'[2:]),
        ("", ""),
    ],
)
def test_the_visible_text_of_a_column(html, text):
    assert visible_text(html) == text


@pytest.mark.parametrize("piece", ["<a =", "<a ='", '<a ="', "= ", "<script", "<!--", "&", "<b x="])
def test_visible_text_of_anything(piece):
    assert isinstance(visible_text(piece * 100_000), str)
    with pytest.raises(TypeError, match="must be a str"):
        visible_text(piece.encode())
