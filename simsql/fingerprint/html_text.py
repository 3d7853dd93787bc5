"""The main content of web pages, without menus, advertisements and footers, as trafilatura finds it.

The result depends on the version of trafilatura, which is not part of a recipe's id: read all pages that you
compare with the same version. If trafilatura finds nothing, the whole page is used.
"""

import codecs
import html as entities
import re
from typing import Any

from simsql.errors import missing_package
from simsql.fingerprint.documents import simhash_parts
from simsql.fingerprint.recipe import DEFAULT_RECIPE, Recipe, check_recipe

_NEVER_TEXT = ("script", "style", "noscript", "template", "svg", "math", "iframe", "object", "select", "textarea")
# trafilatura replaces them by "head".
_HEADINGS = {"h1", "h2", "h3", "h4", "h5", "h6", "head"}
# Inline elements, which may be inside a word; trafilatura replaces some of them by "hi", "ref" and "del".
_INLINE = {
    *("a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font", "hi"),
    *("i", "ins", "kbd", "mark", "q", "ref", "s", "samp", "small", "span", "strike", "strong", "sub", "sup"),
    *("time", "tt", "u", "var", "wbr"),
}
# Where the HTML standard looks for the declaration of an encoding.
_DECLARED_WITHIN = 1024
CHARSET = re.compile(rb"<(?:meta[^>]+?charset|\?xml[^>]+?encoding)\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
# The encodings that browsers use instead of declared ones, by their names in Python.
_MEANT = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
    # A declaration that is readable as ASCII is not in UTF-16.
    "utf-16": "utf-8",
    "utf-16-le": "utf-8",
    "utf-16-be": "utf-8",
}
# Elements that are not closed extend to the end, as in browsers. Otherwise the search would be quadratic.
_NO_TEXT = re.compile(
    r"<!--.*?(?:-->|\Z)"
    r"|<(?P<never>script|style|noscript|template)(?=[\s/>]).*?(?:</(?P=never)(?=[\s/>])[^>]*(?:>|\Z)|\Z)"
    r"|</?(?P<name>[a-z][^\s/>]*)(?:=\s*(?:\"[^\"]*\"|'[^']*')|[^>])*(?:>|\Z)"
    r"|<[/!?][^>]*(?:>|\Z)",
    re.IGNORECASE | re.DOTALL,
)
_SPACE = re.compile(r"\s+")
# Characters that a page needs before its main content is searched: in shorter pages trafilatura takes the whole
# page, and separates the parts of words that are marked up.
_ENOUGH = 250


def simhash_html(html: str | bytes, recipe: Recipe = DEFAULT_RECIPE) -> int | None:
    """Return the fingerprint of a web page, in [0, 2**64), or None if its text has no features.

    It is the fingerprint of `simhash_parts` for the parts of `html_parts`, each with the weight of its class in
    `recipe.class_weights`, or 1. Arguments and errors as for `html_parts`.
    """
    check_recipe(recipe)
    classes = dict(recipe.class_weights)
    return simhash_parts([(text, classes.get(name, 1)) for text, name in html_parts(html)], recipe)


def visible_text(html: str) -> str:
    """Return the text of an HTML column, all of it: without tags, scripts and styles, a line for each block.

    `simhash_html` and `html_parts` are for whole pages, of which they choose the main content. Raises TypeError
    for anything but a str.
    """
    if not isinstance(html, str):
        raise TypeError(f"html must be a str, not {type(html).__name__}")
    return _tidy(entities.unescape(_NO_TEXT.sub(_separator, html)))


# What models name, and indexes store.
visible_text.__module__ = "simsql"


def _separator(markup: re.Match[str]) -> str:
    """Return what separates the texts around a tag, a comment or an element without text."""
    name = markup["name"]
    inline = (name is None and markup["never"] is None) or (name or "").lower() in _INLINE
    return "" if inline else "\n"


def html_parts(html: str | bytes) -> list[tuple[str, str]]:
    """Return the texts of a web page with their classes: one each of "title", "heading" and "text".

    The title is that of the page. The headings and the text are those of the main content, or of the whole page
    if it has fewer than 250 characters or no main content is found. Empty parts are omitted. Scripts and styles
    are not text. Bytes are decoded as in a browser: by a byte order mark, by the encoding that the page declares,
    otherwise as UTF-8 or, if they are not valid UTF-8, as Windows-1252. Invalid bytes are replaced. Broken HTML is
    read as far as possible.

    Raises TypeError if `html` is neither str nor bytes, ModuleNotFoundError without the `html` extra.
    """
    if not isinstance(html, str | bytes):
        raise TypeError(f"a page must be str or bytes, not {type(html).__name__}")
    try:
        import lxml.etree  # noqa: PLC0415 - an extra
        import lxml.html  # noqa: PLC0415
        import trafilatura  # noqa: PLC0415
    except ModuleNotFoundError:
        raise missing_package("the text of web pages", "trafilatura", "trafilatura", "lxml-html-clean") from None
    page = decode_page(html) if isinstance(html, bytes) else html
    parser = lxml.html.HTMLParser(encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True)
    try:
        tree = lxml.html.document_fromstring(page.replace("\0", "").encode("utf-8", "replace"), parser=parser)
    except lxml.etree.ParserError:  # only white space and comments
        return []
    if any(error.type_name == "ERR_RESOURCE_LIMIT" for error in parser.error_log):
        # Nested too deeply: the parser has dropped the rest.
        return _named(title="", heading="", text=entities.unescape(_NO_TEXT.sub(" ", page)))
    lxml.etree.strip_elements(tree, *_NEVER_TEXT, with_tail=False)
    title = str(tree.xpath("string((//title)[1])"))
    lxml.etree.strip_elements(tree, "title", with_tail=False)
    for head in tree.findall("head"):
        head.tag = "div"  # without <body> it may contain the text, and it is not one of trafilatura's headings
    heading, text = _read(tree)
    if len(heading) + len(text) >= _ENOUGH:
        found = trafilatura.bare_extraction(tree, include_comments=False)
        main = ("", "") if found is None else _read(found.body)  # type: ignore[union-attr]  # a dict by request alone
        if any(main):
            heading, text = main
    return _named(title=title, heading=heading, text=text)


def _named(**texts: str) -> list[tuple[str, str]]:
    return [(tidy, name) for name, text in texts.items() if (tidy := _tidy(text))]


def _read(root: Any) -> tuple[str, str]:
    """Return the text of the headings below an element of lxml, and the other text."""
    import lxml.etree  # noqa: PLC0415 - an extra

    headings: list[str] = []
    others: list[str] = []
    within = 0
    for event, element in lxml.etree.iterwalk(root, events=("start", "end")):
        is_heading = element.tag in _HEADINGS
        within += is_heading and event == "start"
        chosen = headings if within else others
        if element.tag not in _INLINE:
            chosen.append("\n")
        within -= is_heading and event == "end"
        if text := element.text if event == "start" else element is not root and element.tail:
            (headings if within else others).append(_SPACE.sub(" ", text))
    return _tidy("".join(headings)), _tidy("".join(others))


def _tidy(text: str) -> str:
    lines = (_SPACE.sub(" ", line).strip() for line in text.split("\n"))
    return "\n".join(filter(None, lines))


def name_charset(declared: bytes) -> str:
    """Return Python's name for the encoding that browsers use for a declared one. Raise LookupError if unknown."""
    encoding = codecs.lookup(declared.decode("ascii", "replace")).name
    return _MEANT.get(encoding, encoding)


def decode_page(data: bytes) -> str:
    """Return the text of a page's bytes, as browsers would decode them."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    if data.startswith(codecs.BOM_UTF8):
        return data.decode("utf-8-sig", "replace")
    declared = CHARSET.search(data[:_DECLARED_WITHIN])
    if declared:
        try:
            return data.decode(name_charset(declared[1]), "replace")
        except (LookupError, UnicodeError):  # an unknown encoding, or a codec that is not for text
            pass
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")
