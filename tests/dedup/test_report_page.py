"""The report of a run as its readers see it: in a real browser, without any network.

`SIMSQL_SCREENSHOTS=docs/images` also takes the pictures of the documentation.
"""

import contextlib
import io
import json
import os
import random
import re
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser import running_chromium
from pictures import draw
from program import wait_until
from report_sample import ARABIC, CHINESE, TEXTS, Sample, harbour_clusters, plain_clusters

from simsql.report import SIZE_LIMIT, Closeness, ReportedMember, RunReport, write_report

Open = Callable[..., Any]
ATTACK = "http://attack.invalid/"
SIZE = {"width": 1280, "height": 860}
PHONE = {"width": 390, "height": 844}


def alike(a: str, b: str) -> Closeness:
    """Say the same of all texts: the clusters are in their order."""
    return Closeness(1, 0.9)


@pytest.fixture(scope="module")
def browser_page() -> Iterator[Any]:
    """A page for all tests: a new one each would take most of their time."""
    with running_chromium() as browser:
        page = browser.new_context(accept_downloads=True).new_page()
        page.set_default_timeout(10_000)
        yield page


@pytest.fixture
def open_report(browser_page: Any, tmp_path: Path) -> Iterator[Open]:
    """Write a report and open it. In the end, fail if it has asked the network for anything or raised an error."""
    path = tmp_path / "report.html"
    pages, seen = [browser_page], []
    watched = {
        "request": lambda request: seen.append(request.url),
        "pageerror": lambda error: seen.append(str(error)),
        "dialog": lambda dialog: seen.append(dialog.message),
    }

    def open_report(
        sample: Sample | None, *, script: str = "", scheme: str = "light", size_limit: int = SIZE_LIMIT
    ) -> Any:
        page = browser_page
        if script:
            page = browser_page.context.browser.new_context().new_page()
            page.add_init_script(script)
            pages.append(page)
        page.set_viewport_size(SIZE)
        page.emulate_media(media="screen", color_scheme=scheme)
        for name, handler in watched.items():
            page.on(name, handler)
        if sample:
            with path.open("w", encoding="utf-8") as file:
                write_report(file, sample.report(), size_limit=size_limit)
        page.goto(path.as_uri())
        return page

    yield open_report
    for page in pages[1:]:
        page.context.close()
    for name, handler in watched.items():
        with contextlib.suppress(KeyError):  # it was not opened
            browser_page.remove_listener(name, handler)
    if browser_page.url != "about:blank":
        browser_page.evaluate("localStorage.clear()")
    attempts = [one for one in seen if not one.startswith(("blob:", path.as_uri()))]
    # What a test has tried itself is of this name.
    assert [one for one in attempts if one != ATTACK] == []


def heading(page: Any) -> str:
    return page.locator("#heading").evaluate("element => element.firstChild.data")


def names(page: Any) -> tuple[str, str]:
    return page.inner_text("#left-name"), page.inner_text("#right-name")


def listed(page: Any) -> list[str]:
    return page.locator("#list .name").all_inner_texts()


def marks(page: Any, side: str) -> list[str]:
    return page.locator(f"#{side} mark").all_text_contents()


def found(page: Any, start: str) -> str:
    """Wait until a search is over that finds so many clusters, and return the heading of the one that is shown."""
    wait_until(lambda: page.inner_text("#found").startswith(f"{start} "), f"{start} clusters")
    return heading(page)


def press(page: Any, keys: str) -> None:
    for key in keys.split():
        page.keyboard.press(key)


def export(page: Any) -> list[dict[str, str]]:
    with page.expect_download() as download:
        page.click("#export")
    assert download.value.suggested_filename == "labels.jsonl"
    return [
        json.loads(line) for line in Path(download.value.path()).read_text(encoding="utf-8").split("\n") if line
    ]


HOSTILE = {
    "<script>document.title = 'lost'</script>": "<script>document.title = 'lost'</script>",
    "</script><script>document.title = 'lost'</script>": "</script><script>document.title = 'lost'</script>",
    "<!-- <script>": "<!-- <script>",
    "</script and </script/and </SCRIPT\n": None,
    "--> ]]> </style></title><img src=http://example.invalid/a.png onerror=alert(1)>": None,
    "<svg onload=alert(1)><iframe src=http://example.invalid/></iframe>": None,
    "{{ 7 * 7 }} {% raw %} ${7 * 7} &lt;b&gt; \\u003cb\\u003e \\n": None,
    "pay \u202efdp.exe\u202c now \u2067x\u2069 \u200fy": "pay RLOfdp.exePDF now RLIxPDI RLMy",
    "bell \x07 escape \x1b[31m delete \x7f next \x85 \x01\x01\x01 end": (
        "bell U+0007 escape U+001B[31m delete DEL next U+0085 U+0001×3 end"
    ),
    "half \ud83d of a face \udc00 whole \U0001f600": "half U+D83D of a face U+DC00 whole \U0001f600",
    "zero\u200bwidth soft\u00adhyphen line\u2028end joined\u200cletters \ufeff": (
        "zeroZWSPwidth softSHYhyphen lineLSEPend joined\u200cletters BOM"
    ),
    "carriage\r\nreturn\rtab\tend": "carriage\nreturnU+000Dtab\tend",
}


def test_hostile_texts_stay_text(open_report):
    clusters = [{text: text, f"{text} ": f"{text} and more"} for text in HOSTILE]
    page = open_report(Sample(clusters, compare=alike))
    for text, named in HOSTILE.items():
        shown = named or text
        assert page.text_content("#left") == shown
        assert page.text_content("#right") == f"{shown} and more"
        # Of ids, each hidden character is named on its own.
        in_line = re.sub("[\r\n\t]", "", page.text_content("#left-name"))
        assert "\u202e" not in in_line
        press(page, "1 j")
    assert page.title() == "Near-duplicates"
    assert page.locator("main script, main img, main iframe, main svg svg").count() == 0
    labels = export(page)
    assert [label["text_a"] for label in labels] == list(HOSTILE)
    assert [label["id_b"] for label in labels] == [f"{text} " for text in HOSTILE]


def test_bidirectional_controls_do_not_reorder(open_report):
    page = open_report(Sample([{"a": "first \u202esecond third", "b": "first \u202esecond third fourth"}]))
    order = """() => [...document.querySelectorAll("#left")].flatMap((pane) => {
        const node = [...pane.childNodes].findLast((one) => one.nodeType === 3), found = [];
        for (let i = 0; i < node.data.length; i++) {
            const range = new Range();
            range.setStart(node, i);
            range.setEnd(node, i + 1);
            found.push(range.getBoundingClientRect().left);
        }
        return found;
    })"""
    places = page.evaluate(order)
    assert len(places) == len("second third")
    assert places == sorted(places)


def test_the_policy_of_the_page_lets_nothing_in(open_report):
    """Even what got into the page could neither run nor load anything."""
    page = open_report(Sample([TEXTS]))
    refused = page.evaluate(
        """async (address) => {
        const refused = [];
        document.addEventListener("securitypolicyviolation", (event) => refused.push(event.effectiveDirective));
        document.body.append(Object.assign(document.createElement("img"), {src: address}));
        await fetch(address).catch(() => {});
        const script = document.createElement("script");
        for (const attack of [() => { script.text = "document.title = 'lost'"; document.body.append(script); },
                () => { document.body.innerHTML = "<p>"; }])
            try { attack(); } catch { refused.push("types"); }
        await new Promise((done) => setTimeout(done, 50));
        return refused;
    }""",
        ATTACK,
    )
    assert {"img-src", "connect-src"} <= set(refused)
    assert refused.count("types") == 2
    assert page.title() == "Near-duplicates"


def test_a_line_of_a_million_characters(open_report):
    words = [f"word{number % 9973}" for number in range(120_000)]
    line = " ".join(words)
    assert len(line) > 1_000_000
    line = line[:1_000_000]
    edited = line.replace(" word5000 ", " another ", 1) + " end"
    other = " ".join(reversed(words))[:1_000_000]
    sample = Sample([{"long": line, "edited": edited, "other": other}], compare=alike)
    page = open_report(sample)
    assert marks(page, "left") == ["word5000"]
    assert marks(page, "right")[0] == "another"
    assert len(page.text_content("#left")) < 10_000
    page.locator("#left .fold").last.click()
    assert 50_000 < len(page.text_content("#left")) < 60_000
    start = time.perf_counter()
    press(page, "n")
    assert names(page) == ("long", "other")
    print(f"\ntwo unlike texts of 1 MB: {1000 * (time.perf_counter() - start):.0f} ms")


def test_pages_search_and_filters(open_report):
    sample = plain_clusters(100)
    page = open_report(sample)
    sizes = [len(cluster) for cluster in sample.clusters]
    closeness = [
        [sample.compare(texts[0], text) for text in texts[1:]]
        for texts in map(list, map(dict.values, sample.clusters))
    ]
    # Those of dropped members, in four digits.
    least = [
        min([int(each.similarity * 10_000 + 1e-6) for each in members if each.similarity >= 0.7] or [20_000])
        for members in closeness
    ]
    assert least[int(heading(page).split()[-1]) - 1] == min(least)
    assert page.inner_text("#found") == f"100 clusters, {sum(sizes)} documents"
    assert page.inner_text("#page") == "page 1 of 3"
    page.click("#next-page")
    doubtful = sorted(range(1, 101), key=lambda number: (least[number - 1], number))
    assert listed(page) == [f"{number}-0.txt" for number in doubtful[40:80]]
    page.click("#list li:nth-child(3) button")
    assert heading(page) == f"Cluster {doubtful[42]}"

    page.fill("#search", "ARTICLES/77-1")
    assert found(page, "1 of 100") == "Cluster 77"
    word = sample.clusters[58]["articles/59-0.txt"]
    phrase = " ".join(word.split()[10:14])
    page.fill("#search", phrase.upper().replace(" ", "  "))
    wait_until(lambda: heading(page) == "Cluster 59", "the cluster")
    assert page.evaluate("CSS.highlights.get('search').size") == 2
    page.fill("#search", "no such words (in any text")
    page.locator("#nothing").wait_for()
    assert page.locator("#cluster").is_hidden()
    page.click("#reset-all")
    assert page.inner_text("#found").startswith("100 clusters")

    page.click("#filters summary")
    page.fill("#size-low", "5")
    expected = [number for number, size in enumerate(sizes, 1) if size == 5]
    assert page.inner_text("#found").startswith(f"{len(expected)} of 100 clusters")
    page.fill("#size-low", "")
    for low, high in ((0.65, 0.75), (0, 0.6), (0.95, 1)):
        page.fill("#similarity-low", str(low))
        page.fill("#similarity-high", str(high))
        expected = sum(any(low <= each.similarity <= high for each in cluster) for cluster in closeness)
        assert f"{expected} of 100 clusters" in page.inner_text("#found")
    page.click("#reset")
    for kind, dropped in (("similar", True), ("kept", False)):
        page.select_option("#kind", kind)
        expected = sum(any((each.similarity >= 0.7) is dropped for each in cluster) for cluster in closeness)
        assert f"{expected} of 100 clusters" in page.inner_text("#found")
    page.click("#reset")
    page.select_option("#order", "size")
    assert page.locator("#list .size").first.inner_text() == "5"


def test_keys(open_report):
    page = open_report(replace(plain_clusters(100), compare=alike))
    press(page, "j j j k")
    assert heading(page) == "Cluster 3"
    press(page, "ArrowDown ArrowUp ArrowUp")
    assert heading(page) == "Cluster 2"
    press(page, "k k k")
    assert heading(page) == "Cluster 1"
    page.click("#next-page")
    page.click("#list button >> nth=0")
    press(page, "k")
    assert (heading(page), page.inner_text("#page")) == ("Cluster 40", "page 1 of 3")
    press(page, "j")
    assert (heading(page), page.inner_text("#page")) == ("Cluster 41", "page 2 of 3")
    page.fill("#search", "-4.txt")  # in clusters of five
    wait_until(lambda: " of 100 " in page.inner_text("#found"), "the search")
    press(page, "Escape")
    number = heading(page).split()[-1]
    press(page, "n n")
    assert names(page) == (f"{number}-0.txt", f"{number}-3.txt")
    press(page, "p")
    assert names(page)[1] == f"{number}-2.txt"
    press(page, "2")
    assert page.locator("[data-label=not]").get_attribute("aria-pressed") == "true"
    press(page, "3")
    assert page.locator("[data-label=not]").get_attribute("aria-pressed") == "false"
    press(page, "3 Control+1 Alt+2")
    assert page.locator("[aria-pressed=true]").count() == 0
    press(page, "?")
    assert page.locator("#help").is_visible()
    press(page, "j Escape")
    assert page.locator("#help").is_hidden()
    assert heading(page) == f"Cluster {number}"
    press(page, "/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("j1")
    assert heading(page) == f"Cluster {number}"
    assert page.locator("[aria-pressed=true]").count() == 0


def test_any_two_members_can_be_compared(open_report):
    texts = {f"{name}.txt": f"a text of the same words in each, {name}" for name in ("one", "two", "three")}
    page = open_report(Sample([texts]))
    assert names(page) == ("one.txt", "two.txt")
    page.click("text=three.txt")
    assert names(page) == ("one.txt", "three.txt")
    page.check("input[name=left][value='1']")
    assert names(page) == ("two.txt", "three.txt")
    assert marks(page, "left") == ["two"]
    assert marks(page, "right") == ["three"]
    assert "similarity" not in page.inner_text("#closeness")  # which nobody has measured
    press(page, "2")
    page.check("input[name=left][value='0']")
    assert page.locator("[aria-pressed=true]").count() == 0
    page.check("input[name=left][value='2']")
    page.check("input[name=right][value='1']")
    assert names(page) == ("three.txt", "two.txt")
    assert page.locator("[data-label=not]").get_attribute("aria-pressed") == "true"
    page.check("input[name=right][value='2']")
    page.check("input[name=left][value='2']")
    assert page.inner_text("#closeness") == "the same document"
    assert page.locator("[data-label]:enabled").count() == 0


def test_judgements_survive_and_are_exported(open_report):
    clusters = [
        TEXTS,
        {"c": "x" * 5000, "d": "x" * 5001},
        {"e": "One text of words", "f": "One text of other words"},
    ]
    sample = Sample(clusters, compare=alike)
    page = open_report(sample, size_limit=204_000)
    assert "leaves out 2 texts from byte" in page.inner_text(".warning")
    press(page, "1 j 2 j 3")
    page.reload()
    assert page.inner_text("#export") == "Export 3 labels"
    assert page.locator("[data-label=near-duplicate]").get_attribute("aria-pressed") == "true"
    assert page.locator("#list .judged").count() == 3
    page.click("#filters summary")
    page.select_option("#judged", "not")
    assert listed(page) == ["c"]
    assert export(page) == [
        {
            "id_a": "a.txt",
            "id_b": "b.txt",
            "text_a": TEXTS["a.txt"],
            "text_b": TEXTS["b.txt"],
            "label": "near-duplicate",
        },
        {"id_a": "c", "id_b": "d", "label": "not"},  # the page holds their beginnings only
        {
            "id_a": "e",
            "id_b": "f",
            "text_a": "One text of words",
            "text_b": "One text of other words",
            "label": "unsure",
        },
    ]
    # Another report has other judgements.
    other = open_report(Sample([TEXTS, TEXTS]))
    assert other.inner_text("#export") == "Export labels"


@pytest.mark.parametrize("refusal", ["get: () => { throw new DOMException('no') }", "value: undefined"])
def test_a_browser_that_keeps_nothing(open_report, refusal):
    page = open_report(Sample([TEXTS]), script=f"Object.defineProperty(window, 'localStorage', {{ {refusal} }})")
    press(page, "1")
    assert page.locator("#unkept").is_visible()
    assert [label["label"] for label in export(page)] == ["near-duplicate"]


def luminance(colour: str) -> float:
    channels = [int(value) / 255 for value in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


# For each element with text of its own, its colour and the colour behind it.
COLOURS = """() => [...document.querySelectorAll("body *")]
    .filter((e) => e.checkVisibility() && !e.closest("svg, :disabled, script, option") &&
        [...e.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
    .map((e) => {
        let behind = e;
        while (getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
        return [e.outerHTML, getComputedStyle(e).color, getComputedStyle(behind).backgroundColor];
    })"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(open_report, scheme):
    page = open_report(Sample(harbour_clusters(5)), scheme=scheme)
    background = luminance(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert (background < 0.2) is (scheme == "dark")
    press(page, "j 1")
    colours = page.evaluate(COLOURS)
    assert len(colours) > 40
    for element, *pair in colours:
        low, high = sorted(map(luminance, pair))
        assert (high + 0.05) / (low + 0.05) >= 4.5, element


def test_everything_has_a_name(open_report):
    page = open_report(Sample(harbour_clusters(5)))
    unnamed = """() => [...document.querySelectorAll("button, input, select, [role=button]")].filter((e) =>
        !(e.ariaLabel || e.textContent.trim() || e.labels?.[0]?.textContent.trim())).map((e) => e.outerHTML)"""
    assert page.evaluate(unnamed) == []
    assert (
        page.evaluate("new Set([...document.querySelectorAll('[id]')].map((e) => e.id)).size")
        == page.locator("[id]").count()
    )
    page.keyboard.press("Tab")
    assert page.inner_text(":focus") == "Skip to the texts"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "cluster"
    page.focus("#search")
    press(page, "Tab Tab Tab")
    assert page.locator("#list :focus").get_attribute("aria-current") == "true"
    press(page, "ArrowDown")
    assert page.locator("#list :focus").get_attribute("aria-current") == "true"
    assert page.locator("#list li:nth-child(2) :focus").count() == 1
    press(page, "Tab")
    assert page.evaluate("document.activeElement.closest('nav') === null")
    page.locator("#list button").first.press("Enter")
    assert page.evaluate("document.activeElement.id") == "cluster"


def test_a_long_name_loses_its_middle(open_report):
    folder = "a folder with a long name/" * 4
    clusters = [{f"in/{folder}1.txt": "one two three", f"in/{folder}x/second text.txt": "one two four"}]
    page = open_report(Sample(clusters, compare=alike))
    assert page.inner_text(".prefix") == f"All names begin with in/{folder}"
    page = open_report(Sample([*clusters, {"in/b": "words", "in/c": "word"}], compare=alike))
    name = page.locator("#list .name").first
    assert name.text_content() == f"{folder}1.txt"
    assert name.get_attribute("title") == f"in/{folder}1.txt"
    inside = """name => {
        const box = name.getBoundingClientRect(), [head, tail] = name.childNodes, range = new Range();
        range.selectNode(tail);
        const end = range.getBoundingClientRect();
        return [head.scrollWidth > head.clientWidth, end.width > 0, end.right <= box.right + 1];
    }"""
    assert name.evaluate(inside) == [True] * 3
    assert listed(page)[1] == "b"
    page.fill("#search", "in/b")  # as it is, not as it is shown
    assert found(page, "1 of 2") == "Cluster 2"


def test_places_are_named_without_their_common_file(open_report, tmp_path):
    itself, near = Closeness(0, 1.0), Closeness(3, 0.9)
    cluster = [
        ReportedMember(0, "doc:7", "in/a.jsonl:1", "representative", 0, itself, itself),
        ReportedMember(1, "doc:8", "in/a.jsonl:12", "dropped", 0, near, near),
    ]
    with (tmp_path / "report.html").open("w", encoding="utf-8") as file:
        write_report(file, RunReport(2, {}, [cluster], lambda document: "text"))
    page = open_report(None)
    assert page.inner_text("#prefix") == "All places begin with in/a.jsonl:"
    assert page.locator("#members .names .name").all_inner_texts() == ["7", "line 1", "8", "line 12"]


def test_evidence_is_in_view(open_report):
    """The texts and their judgement are seen without scrolling, however many members a cluster has."""
    texts = {f"{number}.txt": f"a text of the same words in each, {number} " * 60 for number in range(40)}
    page = open_report(Sample([texts, TEXTS], compare=alike))
    page.set_viewport_size({"width": 1440, "height": 900})
    in_view = """selector => {
        const { top, bottom } = document.querySelector(selector).getBoundingClientRect();
        return [top, bottom].map((y) => y >= 0 && y <= innerHeight);
    }"""
    for _ in range(2):
        assert page.evaluate(in_view, ".judge") == [True, True]
        assert page.evaluate(in_view, "#left") == [True, True]
        page.hover("#left")
        page.mouse.wheel(0, 9000)
    wait_until(lambda: page.evaluate("left.scrollTop > 0 && left.scrollTop === right.scrollTop"), "both texts")
    press(page, "j")
    # A short pair leaves no empty frame.
    assert page.evaluate("document.querySelector('#cluster').getBoundingClientRect().height") < 400


def test_a_narrow_page_shows_the_list_or_a_cluster(open_report):
    page = open_report(Sample(harbour_clusters(), alone=10))
    page.set_viewport_size(PHONE)
    page.reload()
    fits = "document.documentElement.scrollWidth <= innerWidth"
    assert page.evaluate(f"scrollY === 0 && {fits}")
    assert page.locator("#cluster").is_hidden()
    page.click("#list li:nth-child(30) button")
    assert page.locator("nav").is_hidden()
    assert page.evaluate(f"document.querySelector('.title').getBoundingClientRect().top < 60 && {fits}")
    shown = heading(page)
    beside = """() => [...document.querySelectorAll("#members tr")].slice(1).map((row) => {
        const [name, badge, close] = [...row.cells].slice(2, 5).map((cell) => cell.getBoundingClientRect());
        return badge.top >= name.bottom - 1 && close.top >= name.bottom - 1 && close.right <= innerWidth;
    })"""
    assert set(page.evaluate(beside)) == {True}
    assert page.locator(".judge").is_visible()
    page.go_back()
    assert page.locator("#cluster").is_hidden()
    current = page.locator("#list [aria-current]")
    assert shown.split()[-1] == current.locator(".at").inner_text()
    wait_until(lambda: page.evaluate("scrollY > 0"), "the list at the cluster")
    current.click()
    page.click(".back")
    assert page.locator("#list").is_visible()


def test_without_scripts(open_report, browser_page):
    page = open_report(Sample([TEXTS]))
    with contextlib.closing(browser_page.context.browser.new_context(java_script_enabled=False)) as quiet:
        still = quiet.new_page()
        still.goto(page.url)
        assert still.get_by_text("Allow the script of this page").is_visible()


@pytest.mark.parametrize("end", ["\n", "\0"])
def test_a_drop_list_without_what_was_judged(open_report, tmp_path, end):
    report = Sample([{"a": "x", "b": "y", "c": "z"}, {"d": "x", "e": "y"}], compare=alike).report(line_end=end)
    listed = {"b": "b", "c": "in/c", "e": "other\te", "d": None, "a": None}
    members = (
        [replace(each, place=f"in/{each.id}", listed=listed[each.id]) for each in one] for one in report.clusters
    )
    with (tmp_path / "report.html").open("w", encoding="utf-8") as file:
        write_report(file, replace(report, clusters=members))
    page = open_report(None)
    button = page.locator("#drop-list")
    assert button.is_hidden()
    press(page, "n 2 1")
    assert button.is_hidden()
    page.check("input[name=left][value='1']")  # of two drops
    press(page, "2")
    assert button.is_hidden()
    page.check("input[name=left][value='0']")
    for keys, text, lines in (
        ("2", "Save drop list 2 of 3 drops", ["b", "other\te"]),
        ("j 2", "Save drop list 1 of 3 drops", ["b"]),
        ("k 2", "Save drop list 2 of 3 drops", ["b", "in/c"]),
    ):
        press(page, keys)
        if keys == "k 2":
            press(page, "2 n 2")
        assert button.inner_text() == text
        with page.expect_download() as download:
            button.click()
        assert Path(download.value.path()).read_text(encoding="utf-8") == "".join(line + end for line in lines)


def saved(page: Any, button: str = "#drop-list") -> list[str] | None:
    """Return the lines of the file that the page saves; None if it has no other drop list than the run."""
    if page.locator(button).is_hidden():
        return None
    # Chromium refuses more than ten downloads of one page.
    page.evaluate("() => { download = (name, type, lines) => { globalThis.given = lines.join(''); }; }")
    page.click(button)
    return page.evaluate("given").split("\n")[:-1]


def test_one_click_judges_a_cluster_two_folders_or_all_that_is_listed(open_report):
    bills = {f"bills/{n}.txt": f"The bill of this month is {n} euros, to be paid soon." for n in range(50)}
    others = [{f"{a}/{n}.txt": f"a letter {n}", f"{b}/{n}b.txt": f"a letter from {n}"} for n, a, b in
              ((1, "in", "out"), (2, "out", "in"), (3, "in", "in"))]  # fmt: skip
    page = open_report(Sample([bills, *others], compare=alike))
    press(page, "2 2")
    page.click("[data-scope=cluster][data-all=not]")
    assert saved(page) == ["out/1b.txt", "in/2b.txt", "in/3b.txt"]
    assert page.inner_text("#export") == "Export 49 labels"
    assert {json.loads(label)["label"] for label in saved(page, "#export")} == {"not"}
    press(page, "u")
    assert saved(page) is None
    page.click("#undo")  # what was taken back
    assert saved(page) == [*(f"bills/{n}.txt" for n in range(2, 50)), "out/1b.txt", "in/2b.txt", "in/3b.txt"]
    page.click("#undo")
    assert page.locator("#undo").is_disabled()
    press(page, "j")
    assert page.inner_text("#of-folders") == "2"
    page.click("[data-scope=folders][data-all=not]")
    assert saved(page) == [*(f"bills/{n}.txt" for n in range(1, 50)), "in/3b.txt"]
    press(page, "u")
    page.select_option("#kind", "similar")
    assert page.inner_text("#of-shown") == "3"
    page.click("[data-scope=shown][data-all=near-duplicate]")
    labels = [json.loads(label) for label in saved(page, "#export")]
    assert [label["id_a"] for label in labels] == ["in/1.txt", "out/2.txt", "in/3.txt"]
    assert {label["label"] for label in labels} == {"near-duplicate"}


def test_the_least_similar_drops_of_each_kind_come_first(open_report):
    closeness = {"x 1": 0.99, "x 2": 0.95, "y": 0.8, "z 3": 0.9, "w": 0.75}
    clusters = [
        {"a": "x", "b": "x", "c": "y"},
        {"d": "z 1", "e": "w", "f": "z 3"},
        {"g": "x 0", "h": "x 1", "i": "x 2"},
    ]
    page = open_report(Sample(clusters, compare=lambda a, b: Closeness(1, closeness.get(b, 1.0))))
    assert page.locator("#kind option").all_inner_texts()[:-1] == [
        "all kinds of drops",
        "numbers: 3",
        "similar: 2",
        "identical: 1",
    ]
    assert listed(page) == ["d", "a", "g"]
    for kind, clusters, pair in (
        ("numbers", ["d", "g"], ("d", "f")),
        ("similar", ["d", "a"], ("d", "e")),
        ("identical", ["a"], ("a", "b")),
    ):
        page.select_option("#kind", kind)
        assert (listed(page), names(page)) == (clusters, pair)
    page.click("#filters summary")
    page.click("#reset")
    assert page.input_value("#kind") == ""


def test_a_comparison_opens_at_the_first_difference(open_report):
    lines = [f"if (item[{n}] != NULL) {{ return item[{n}] * 2; }}" for n in range(200)]
    edited = [line.replace("* 2", "* 3") if n in (90, 150) else line for n, line in enumerate(lines)]
    del edited[120]
    prose = {"c.txt": "A poem, of sorts; with signs:\n" * 9, "d.txt": "A poem, of sorts; with sighs:\n" * 9}
    page = open_report(Sample([{"a.c": "\n".join(lines), "b.c": "\n".join(edited)}, prose], compare=alike))
    assert page.locator(".code").count() == 2
    in_view = """side => {
        const pane = document.querySelector(side).getBoundingClientRect();
        const { top, bottom } = document.querySelector(`${side} .current`).getBoundingClientRect();
        return top >= pane.top && bottom <= pane.bottom;
    }"""

    def current() -> list[str]:
        assert [page.evaluate(in_view, side) for side in ("#left", "#right")] == [True, True]
        return page.locator(".current").all_text_contents()

    assert current() == ["2", "3"]
    press(page, "d")
    assert [len(text) for text in current()] == [len(lines[120]) + 1, 0]
    page.click("#next-change")
    assert current() == ["2", "3"]
    assert page.inner_text("#status") == "Difference 3 of 3"
    assert page.locator("#next-change").is_disabled()
    press(page, "D")
    page.click("#previous-change")
    assert page.locator("#previous-change").is_disabled()
    assert page.locator("#members del, #members ins").all_text_contents()[:2] == ["2", "3"]
    press(page, "j")
    assert page.locator(".code").count() == 0
    page.set_viewport_size(PHONE)
    press(page, "k")
    page.click("#list button")
    press(page, "d")
    assert current()[1] == ""


def test_a_cluster_names_what_differs(open_report):
    folders = "a folder/of some/long path/"
    clusters = [
        {f"{folders}{n}/src/file.txt": f"the same beginning of all, {n}" for n in (1, 2)},
        {"b": "w", "c": "w"},
    ]
    page = open_report(Sample(clusters, compare=alike))
    assert page.locator("#members .names > .name").all_inner_texts() == ["1/src/file.txt", "2/src/file.txt"]
    assert folders in page.inner_text("#heading")
    assert page.locator("#list .snippet").all_inner_texts() == ["1 2 ", "w"]


@pytest.mark.parametrize("seed", range(3))
def test_a_saved_drop_list_is_safe(open_report, seed):
    """Whatever was judged and chosen, a text in the list was compared with one that stays and is similar."""
    chance = random.Random(seed)
    clusters = [{f"{n}{name}": f"{n}{name}" for name in "abcdef"[: chance.randrange(2, 7)]} for n in range(3)]
    close: dict[frozenset[str], float] = {}

    def compare(a: str, b: str) -> Closeness:
        # Some of those dropped in favour of a text are not similar to each other.
        least = 0.7 if "a" in a + b else 0.5
        return Closeness(1, close.setdefault(frozenset((a, b)), round(chance.uniform(least, 1), 3)))

    page = open_report(Sample(clusters, compare=compare))
    chosen = 0
    for _ in range(60):
        press(page, key := chance.choice(["j", "k", "n", "n", "p", "1", "2", "2", "b", "b", "b", "u"]))
        if key in "jknp":  # to another text
            continue
        chosen += page.inner_text("#status") == "Another one is kept"
        dropped = saved(page)
        if dropped is None:
            continue
        labels = map(json.loads, saved(page, "#export") if page.locator("#export").is_enabled() else [])
        refused = {frozenset((one["id_a"], one["id_b"])) for one in labels if one["label"] == "not"}
        for texts in clusters:
            stay = texts.keys() - set(dropped)
            for text in texts.keys() & set(dropped):
                pairs = [frozenset((text, other)) for other in stay]
                assert any(close[pair] >= 0.7 and pair not in refused for pair in pairs if pair in close)
    assert chosen
    before = saved(page)
    page.reload()
    assert saved(page) == before


def test_a_drop_list_without_texts_whose_kept_one_is_left_out(open_report, tmp_path):
    itself, near = Closeness(0, 1.0), Closeness(2, 0.8)

    def members(first: int, size: int, kept: int) -> list[ReportedMember]:
        names = [f"{number}" for number in range(first, first + size)]
        decisions = ["representative", *("kept" if n == kept else "dropped" for n in range(1, size))]
        return [
            ReportedMember(first + n, names[n], names[n], decisions[n], first + kept, itself, near, names[n])
            for n in range(size)
        ]

    clusters = [members(0, 60, 59), members(60, 3, 0)]
    with (tmp_path / "report.html").open("w", encoding="utf-8") as file:
        report = RunReport(63, {}, clusters, lambda document: f"{document} " * 500)
        write_report(file, report, size_limit=230_000)
    page = open_report(None)
    press(page, "j")
    assert heading(page) == "Cluster 2"
    press(page, "2")
    assert saved(page) == ["62"]


def test_another_document_can_be_kept(open_report):
    clusters = [{"a": "one", "b": "two", "c": "three", "d": "four"}]
    far = [{"three", "four"}]
    page = open_report(Sample(clusters, compare=lambda a, b: Closeness(1, 0.5 if {a, b} in far else 0.9)))
    press(page, "b")  # similar to all others
    assert names(page) == ("b", "a")
    assert page.locator("#members .badge").all_inner_texts() == ["dropped", "kept", "dropped", "dropped"]
    assert saved(page) == ["a", "c", "d"]
    press(page, "n")
    assert names(page) == ("b", "c")
    assert page.inner_text("#closeness").startswith("similarity 0.90 · ")
    assert page.locator("#keep").is_disabled()  # not similar to d
    press(page, "b n 2")
    assert saved(page) == ["a", "c"]
    press(page, "p p p b")  # the first choice again
    assert names(page) == ("a", "b")
    assert saved(page) is None
    press(page, "n n 2 p")
    assert names(page) == ("a", "c")
    page.click("#keep")  # d stays
    assert saved(page) == ["a", "b"]
    page.click("#undo")
    assert saved(page) == ["b", "c"]


def test_right_to_left_and_unspaced_scripts(open_report):
    page = open_report(
        Sample(
            [
                ARABIC,
                {"marked": "\u200f \u200eنص", "copy": "\u061cنص"},
                {"lines": "عربي\nLatin", "same": "عربي\nLatin"},
                CHINESE,
            ],
            compare=alike,
        )
    )
    direction = "place => getComputedStyle(document.querySelector(place)).direction"
    assert [page.evaluate(direction, place) for place in ("#left", ".snippet", "h2")] == ["rtl", "rtl", "ltr"]
    assert marks(page, "left") == ["الثامنة", "للزوار", "الشاي"]
    assert marks(page, "right") == ["التاسعة", "للطلاب", "القهوة"]
    press(page, "j")
    assert page.evaluate(direction, "#left") == "rtl"  # the names of the marks do not count
    assert listed(page)[1] == "marked"
    assert page.text_content("li:nth-child(2) .snippet").split() == ["RLM", "LRM", "ALM"]
    press(page, "j")
    assert page.evaluate(direction, "#left") == "rtl"
    sides = page.evaluate("""() => {
        const pane = document.querySelector("#left"), [text] = pane.childNodes, box = pane.getBoundingClientRect();
        const line = (start, end) => {
            const range = new Range();
            range.setStart(text, start);
            range.setEnd(text, end);
            return range.getBoundingClientRect();
        };
        return [box.right - line(0, 4).right, line(5, 9).left - box.left];
    }""")
    assert max(map(abs, sides)) < 2  # each line begins at its own side
    press(page, "j")
    assert page.evaluate(direction, "#left") == "ltr"
    assert marks(page, "left") == ["八", "读者"]
    assert marks(page, "right") == ["九", "学生"]


def test_marks_are_the_words_that_differ(open_report):
    """Edits that are planted far enough apart are what is marked."""
    page = open_report(Sample([TEXTS]))
    chance = random.Random(7)
    alphabets = ["abcdefgh", "абвгдежз", "αβγδεζηθ", "가나다라마바사", "ابتثجحخد"]
    pairs, expected = [], []
    for _ in range(150):
        letters = chance.choice(alphabets)
        words = [
            "".join(chance.choices(letters, k=chance.randrange(3, 8))) for _ in range(chance.randrange(5, 300))
        ]
        gap = [chance.choice([" ", "  ", "\n", "\r\n"]) for _ in words]
        edited, planted = list(words), []
        for place in range(chance.randrange(4), len(words), 4 + chance.randrange(9)):
            edited[place] = "" if chance.random() < 0.2 else f"{chance.randrange(10**9)}"
            planted.append((words[place], edited[place]))
        pairs.append([" ".join(words), "".join(map("".join, zip(edited, gap, strict=True)))])
        expected.append(planted)
    found = page.evaluate("pairs => pairs.map(([a, b]) => differences.compare(a, b))", pairs)
    for (left, right), (a, b), planted in zip(pairs, found, expected, strict=True):
        assert "".join(text for text, _ in a) == left
        assert "".join(text for text, _ in b) == right
        assert len(a) == len(b)
        for (x, changed), (y, _) in zip(a, b, strict=True):
            assert changed or x.split() == y.split()
        assert [(x, y) for (x, changed), (y, _) in zip(a, b, strict=True) if changed and (x or y)] == planted

    # Whatever the texts, the parts are the texts, and those that are not marked are equal but for white space.
    letters = "ab c\n中文かな\u0e01\u0e33é\u0301\ud83d\U0001f600.,-\u202e\u200d"
    pairs = [["".join(chance.choices(letters, k=chance.randrange(200))) for _ in "ab"] for _ in range(200)]
    vocabularies = ["abc", [str(number) for number in range(5000)]]
    pairs += [[" ".join(chance.choices(words, k=6000)) for _ in "ab"] for words in vocabularies]
    check = """pairs => JSON.parse(pairs).filter((pair) => {
        const [a, b] = differences.compare(...pair);
        const words = (part) => part[0].replace(/\\s+/gu, "");
        return [a, b].some((side, which) => side.map((part) => part[0]).join("") !== pair[which]) ||
            a.some((part, at) => !part[1] && words(part) !== words(b[at]));
    })"""
    assert page.evaluate(check, json.dumps(pairs)) == []


def test_what_is_left_out_is_said(open_report):
    clusters = [{f"{number}-{copy}": "word " * 900 + str(copy) for copy in range(40)} for number in range(20)]
    clusters[3]["3-39"] = "word"  # shown nowhere
    page = open_report(Sample(clusters, compare=alike), size_limit=350_000)
    warning = page.inner_text(".warning >> nth=0")
    kept = 20 - int(re.search(r"the last (\d+) clusters of 20", warning)[1])
    assert "members of clusters with more than 10" in warning
    assert page.inner_text("#found") == f"{kept} clusters, {40 * kept} documents"
    assert "30 left out of this page" in page.inner_text("#heading")
    assert "The page holds the first" in page.inner_text("#left-note")
    assert page.locator("#run > summary b").all_inner_texts() == ["800", "20", "780", "20"]


def test_texts_that_cannot_be_read(open_report, tmp_path):
    sample = Sample([TEXTS], compare=lambda a, b: Closeness(3, None))
    report = replace(sample.report(), read_text=lambda document: None, drop_similarity=None)
    with (tmp_path / "report.html").open("w", encoding="utf-8") as file:
        write_report(file, report)
    page = open_report(None)
    assert page.inner_text("#left-note") == page.inner_text("#right-note") == "The page does not hold this text."
    assert page.inner_text("#closeness") == "similarity – · distance 3"
    press(page, "1")
    assert export(page) == [{"id_a": "a.txt", "id_b": "b.txt", "label": "near-duplicate"}]


def test_screenshots(open_report, tmp_path):
    folder = Path(os.environ.get("SIMSQL_SCREENSHOTS", tmp_path))
    sample = Sample(harbour_clusters(), alone=321)
    names = []

    def take(name: str) -> None:
        names.append(f"report-{name}.png")
        page.screenshot(path=folder / names[-1])

    for scheme in ("light", "dark"):
        page = open_report(sample if scheme == "light" else None, scheme=scheme)
        take(scheme)
        page.click("#run > summary")
        if scheme == "light":
            take("numbers")
            continue
        page.fill("#search", next(iter(ARABIC)))
        assert found(page, "1 of 62") == "Cluster 3"
        page.set_viewport_size({**SIZE, "height": 560})
        page.click("#run > summary")
        take("arabic")
    with (tmp_path / "report.html").open("w", encoding="utf-8") as file:
        write_report(file, picture_report(60))
    page.set_viewport_size({**SIZE, "height": 680})
    page = open_report(None)
    take("pictures")
    assert all(10_000 < (folder / name).stat().st_size < 300_000 for name in names)


def picture_report(clusters: int) -> RunReport:
    """Three pictures in each cluster, the last of which is dropped and the same as the first."""

    def read(document: int) -> str:
        file = io.BytesIO()
        picture = draw(document // 3 + (document % 3 == 1), 800, 600).resize((200, 150))
        picture.save(file, "JPEG", quality=70)
        size = "1000x750" if document % 3 == 2 else "4000x3000"
        return f"{size} data:image/jpeg;base64,{b64encode(file.getvalue()).decode()}"

    def members(first: int) -> list[ReportedMember]:
        itself, close, copy = Closeness(0, 1.0), Closeness(9, 0.71), Closeness(2, 0.97)
        names = [f"photos/{first // 3}{name}" for name in (".jpg", " late.jpg", " small.webp")]
        return [
            ReportedMember(first, names[0], names[0], "representative", first, itself, itself),
            ReportedMember(first + 1, names[1], names[1], "kept", first + 1, itself, close),
            ReportedMember(first + 2, names[2], names[2], "dropped", first, copy, copy, names[2]),
        ]

    found = (members(3 * number) for number in range(clusters))
    command = "simsql dedup photos --recipe phash --report report.html"
    return RunReport(5 * clusters, {"recipe": "phash1-set-1"}, found, read, 0.95, command, noun="picture")


def test_pictures_are_side_by_side(open_report, tmp_path):
    path = tmp_path / "report.html"
    with path.open("w", encoding="utf-8") as file:
        write_report(file, picture_report(3))
    page = open_report(None)
    assert names(page) == ("0.jpg", "0 small.webp")
    drawn = "image => image.complete && image.naturalWidth === 200 && image.clientWidth > 200"
    for side, alt in (("left", "0.jpg, 4000x3000 pixels"), ("right", "0 small.webp, 1000x750 pixels")):
        assert page.locator(f"#{side} img").evaluate(drawn)
        assert page.get_attribute(f"#{side} img", "alt") == alt
    page.locator("#members tbody tr").nth(1).click()
    assert page.get_attribute("#right img", "alt") == "0 late.jpg, 4000x3000 pixels"
    assert page.inner_text("#closeness") == "similarity 0.71 · distance 9"
    page.fill("#search", "data")  # names are searched, not the bytes of pictures
    page.wait_for_selector("#nothing", state="visible")
    page.fill("#search", "")
    page.wait_for_selector("#cluster", state="visible")
    page.locator("#search").blur()
    press(page, "1")
    assert "text_a" not in export(page)[0]
    # Pictures are never cut: where there is no room, clusters are left out.
    with path.open("w", encoding="utf-8") as file:
        write_report(file, picture_report(60), size_limit=450_000)
    assert path.stat().st_size < 450_000
    page = open_report(None)
    assert re.search(r"the last \d+ clusters of 60", page.inner_text(".warning >> nth=0"))
    assert page.locator("#left img").evaluate(drawn)
