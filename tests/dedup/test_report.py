"""The file of a report: what it holds, what it leaves out to stay small, and that nothing breaks out of it."""

import json
import re
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from program import run, write_lines
from report_sample import TEXTS, Sample, harbour_clusters, plain_clusters

from simsql import similarity
from simsql.dedup.sinks.report import show_command
from simsql.report import SIZE_LIMIT, Closeness, ReportedMember, RunReport, write_report
from simsql.report.collected import to_json
from simsql.report.limits import LEAST_MEMBERS, LEAST_TEXT, cut_text


class Page(HTMLParser):
    """The scripts of a page, and the text of its other elements."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.tags: Counter[str] = Counter()
        self.text = ""
        self._open = ""
        self.feed(html)
        self.close()
        data = [script for script in self.scripts if script[0] in "[{"]
        self.chunks = [json.loads(chunk) for chunk in data[:-1]]
        self.index = json.loads(data[-1])

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags[tag] += 1
        self._open = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            self.scripts[-1] += data
        elif self._open != "style":
            self.text += data

    @property
    def clusters(self) -> list[dict[str, Any]]:
        """For each cluster, the texts of its members by id: a list with a part of a text that is cut."""
        return [
            {row[0]: None if row[-1] < 0 else self.chunks[chunk][at][row[-1]] for row in rows}
            for chunk, at, _, rows in self.index["clusters"]
        ]


def write(report: RunReport, **options: Any) -> str:
    file = StringIO()
    write_report(file, report, **options)
    html = file.getvalue()
    assert "\r" not in html
    return html


def read(sample: Sample, **options: Any) -> Page:
    return Page(write(sample.report(), **options))


def test_a_report_holds_every_text_and_reads_each_once():
    sample = Sample(harbour_clusters(40), alone=7)
    page = read(sample)
    assert page.clusters == sample.clusters
    assert sample.reads == list(range(len(sample.texts)))
    assert [cluster[2] for cluster in page.index["clusters"]] == list(map(len, sample.clusters))


@given(st.lists(st.text(st.characters(codec=None), max_size=30), min_size=2, max_size=5, unique=True))
@settings(max_examples=30)
def test_any_text_comes_back(texts):
    clusters = [
        dict(zip(texts, [*texts[1:], "</script><script>"], strict=True)),
        {"<!--": "]]>", "-->": "<script"},
    ]
    sample = Sample(clusters, compare=lambda a, b: Closeness(0, 1.0))
    html = write(sample.report(options={"</p><script>": "<script>"}))
    html.encode("utf-8")
    page = Page(html)
    assert page.clusters == clusters
    assert page.tags["script"] == 3


@given(st.text(st.characters(codec=None)))
@example("</script <!-- & \u2028\ud800")
def test_json_of_a_page_closes_and_opens_nothing(text):
    written = to_json([text])
    assert not re.search("[<>&\u2028\u2029\ud800-\udfff]", written)
    assert json.loads(written) == [text]


def test_equal_texts_of_a_cluster_are_written_once():
    text = "the same words again " * 100
    page = read(Sample([{"a": text, "b": text, "c": text + "more", "d": text}]))
    assert [row[-1] for row in page.index["clusters"][0][3]] == [0, 0, 1, 0]
    assert page.chunks == [[[text, text + "more"]]]


def test_numbers_count_all_members():
    sample = Sample(harbour_clusters(), alone=100)
    members = [member for cluster in sample.report().clusters for member in cluster]
    sample = Sample(harbour_clusters(), alone=100)
    html = write(sample.report(), size_limit=230_000)
    assert "leaves out the last" in html
    dropped = sum(member.decision == "dropped" for member in members)
    totals = re.findall(r"<b>([\d,]+)</b> (\w+)", html.partition("</summary>")[0])
    assert {name: int(number.replace(",", "")) for number, name in totals} == {
        "documents": len(members) + 100,
        "clusters": len(sample.clusters),
        "dropped": dropped,
        "stay": len(members) + 100 - dropped,
    }


def test_a_similarity_is_never_rounded_up():
    closeness = Closeness(4, 0.69999999)
    page = read(Sample([{"a": "one", "b": "two"}], compare=lambda a, b: closeness))
    assert page.index["clusters"][0][3][1][4:8] == [0, 1.0, 4, 0.6999]


def test_the_digest_tells_reports_apart():
    clusters = [{"a": "one text", "b": "another text"}]
    changes = [
        clusters,
        [{"a": "one text", "c": "another text"}],
        [{"a": "one text", "b": "another tex"}],
        clusters * 2,
    ]
    digests = [read(Sample(some)).index["digest"] for some in changes]
    assert len(set(digests)) == len(changes)
    assert digests[0] == read(Sample(clusters)).index["digest"]


def sizes(limit: int, sample: Sample) -> tuple[Page, str]:
    """Write a report of at most this size; return it and what it says of what it leaves out."""
    html = write(sample.report(), size_limit=limit)
    assert len(html.encode()) <= limit
    warning = re.search(r"this page leaves out (.*?)\. The numbers", html)
    return Page(html), warning[1] if warning else ""


def held(text: str | list[str] | None) -> str:
    return text[0] if isinstance(text, list) else text or ""


def test_texts_are_cut_first():
    sample = plain_clusters(100, words=400)
    sample.clusters[5]["short"] = "中文" * 100
    whole, said = sizes(2_000_000, sample)
    assert (whole.clusters, said) == (sample.clusters, "")
    sample.texts.clear()
    page, said = sizes(600_000, sample)
    cut = [text for cluster in page.clusters for text in cluster.values() if isinstance(text, list)]
    assert re.fullmatch(rf"{len(cut)} texts from byte [\d,]+ on", said)
    assert [*map(len, page.clusters)] == [*map(len, sample.clusters)]
    assert page.clusters[5]["short"] == "中文" * 100
    for cluster, texts in zip(page.clusters, sample.clusters, strict=True):
        for name, text in cluster.items():
            assert texts[name].startswith(held(text))
            assert len(held(text)) > LEAST_TEXT or not isinstance(text, list)
    # As much is left as fits.
    written = len(write(plain_clusters(100, words=400).report(), size_limit=600_000).encode())
    assert written > 600_000 - 200_000


def test_members_of_large_clusters_are_left_out_next():
    small, large = {"a": "x" * 900, "b": "y" * 900}, {str(number): f"{number} " * 500 for number in range(300)}
    page, said = sizes(400_000, Sample([small, large, small], compare=lambda a, b: Closeness(0, 0.5)))
    assert [len(cluster) for cluster in page.clusters][::2] == [2, 2]
    shown = len(page.clusters[1])
    assert LEAST_MEMBERS < shown < 300
    assert said == f"{300 - shown} members of clusters with more than {shown}, {shown} texts from byte 1,000 on"
    assert page.index["clusters"][1][2] == 300


def test_clusters_are_left_out_last():
    sample = Sample([{f"{number}-{copy}": f"{copy} " * 1000 for copy in range(20)} for number in range(50)])
    page, said = sizes(400_000, replace(sample, compare=lambda a, b: Closeness(0, 0.5)))
    shown = len(page.clusters)
    assert 0 < shown < 50
    assert {len(cluster) for cluster in page.clusters} == {LEAST_MEMBERS}
    expected = f"the last {50 - shown} clusters of 50, {10 * shown} members of clusters with more than 10, "
    assert said == f"{expected}{10 * shown} texts from byte 1,000 on"


def test_a_kept_text_that_is_left_out():
    """A member whose kept text stands further down in a large cluster is shown without it."""
    itself, near = Closeness(0, 1.0), Closeness(2, 0.8)
    count = 60

    def kept_positions(kept: int, size_limit: int) -> list[int]:
        members = [
            ReportedMember(n, str(n), "", "kept" if n == kept else "dropped", kept, near, near)
            for n in range(1, count)
        ]
        members.insert(0, ReportedMember(0, "0", "", "representative", 0, itself, itself))
        report = RunReport(count, {}, [members], lambda document: f"{document} " * 500)
        return [row[3] for row in Page(write(report, size_limit=size_limit)).index["clusters"][0][3]]

    shown = len(kept_positions(1, 230_000))
    assert 2 < shown < count
    assert kept_positions(shown - 1, 230_000) == [0] + [shown - 1] * (shown - 1)
    assert kept_positions(shown, 230_000) == [0] + [-1] * (shown - 1)
    assert kept_positions(count - 1, SIZE_LIMIT) == [0] + [count - 1] * (count - 1)


@given(st.text(st.characters(codec=None), max_size=60), st.integers(2, 80))
def test_a_text_is_cut_to_the_longest_beginning_that_fits(text, limit):
    fitting = [text[:end] for end in range(len(text) + 1) if len(to_json(text[:end]).encode()) <= limit]
    assert cut_text(text, limit) == fitting[-1]


def test_a_run_without_clusters():
    page = read(Sample([], alone=5))
    assert page.clusters == []
    assert page.tags["svg"] == 0
    page = read(Sample([]))
    assert page.clusters == []


def test_memory_does_not_grow_with_the_texts():
    def members() -> Iterator[list[ReportedMember]]:
        itself = Closeness(0, 1.0)
        for number in range(0, 40, 2):
            first = ReportedMember(number, str(number), "place", "representative", number, itself, itself)
            yield [first, ReportedMember(number + 1, "copy", "place", "dropped", number, itself, itself)]

    class Nowhere:
        written = 0

        def write(self, text: str) -> None:
            self.written += len(text)

    file = Nowhere()
    tracemalloc.start()
    try:
        write_report(file, RunReport(40, {}, members(), lambda document: f"{document:04} " * 100_000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert file.written > 20_000_000
    assert peak < 10_000_000


@pytest.mark.parametrize("name", ["http:", "https:", "src=", "@import", "url("])
def test_the_page_names_nothing_outside(name):
    assert name not in write(Sample([TEXTS]).report())


def test_the_report_of_a_run_shows_its_decisions_and_texts(tmp_path, home):
    words = [f"word{number}" for number in range(60)]
    texts = {
        "original": " ".join(words),
        "edited": " ".join([*words[:-2], "other", "words"]),
        "related": " ".join([*words[:46], "</script>", *(f"new{number}" for number in range(13))]),
        "alone": "nothing of this is anywhere else, in no other text of the file",
    }
    lines = [{"id": name, "text": text} for name, text in texts.items()]
    lines += [{"id": "dots", "text": "..."}, {"other": "<field>"}]
    path = write_lines(tmp_path / "texts.jsonl", lines)
    options = ["--distance", "30", "--report", tmp_path / "report.html", "--drop-list", tmp_path / "drop.txt"]
    (cluster,) = run("dedup", path, *options, home=home).done().clusters
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert page.clusters == [{member["id"]: texts[member["id"]] for member in cluster["members"]}]
    assert [member["id"] for member in cluster["members"] if member["droppable"]] == ["edited"]
    assert "words12-log-2" in page.text
    assert page.text.count(f"simsql dedup {path} --distance 30 --report ") == 2
    assert re.search(r"1 not compared\s", page.text)
    assert "texts.jsonl:6: " in page.text  # what was skipped
    listed = [row[row[8] - 1] for row in page.index["clusters"][0][3] if row[2] == 2]
    assert listed == (tmp_path / "drop.txt").read_text().split("\n")[:-1] == ["edited"]


@pytest.mark.parametrize("protected", [False, True])
def test_the_report_of_a_run_knows_who_else_could_be_kept(tmp_path, home, protected):
    words = [f"word{number}" for number in range(100)]
    folder = tmp_path / "in" / "texts"
    folder.mkdir(parents=True)
    for name, changed in (("a", []), ("b", [3]), ("d", [50, 70]), ("e", [50, 71])):
        text = " ".join("other" if at in changed else word for at, word in enumerate(words))
        (folder / name).write_text(text + " end" * (name == "a"))
    (folder / "c").hardlink_to(folder / "b")  # neither may be dropped in favour of the other
    options = ["--keep", "longest", "--distance", "30", "--report", tmp_path / "report.html"]
    options += ["--keep-under", folder / "a"] if protected else []
    run("dedup", tmp_path / "in", *options, home=home).done()
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    (cluster,), (rows,) = page.clusters, (rows for *_, rows in page.index["clusters"])
    assert page.index["drop"] == 0.7
    assert sorted(row[0][-1] for row in rows) == list("abcde")
    assert [row[8] for row in rows] == [0 if protected else 1, 1, 1, 1, 1]
    assert [row[9] for row in rows] == ["", *["similar"] * 4]
    for at, row in enumerate(rows[1:]):
        same = {"b", "c"}
        assert row[10] == [
            None if {row[0][-1], other[0][-1]} == same else similarity_digits(cluster[row[0]], cluster[other[0]])
            for other in rows[1 : at + 1]
        ]


def similarity_digits(a: str, b: str) -> float:
    return int(similarity(a, b) * 10_000 + 1e-6) / 10_000


def test_the_command_of_a_report_has_no_password():
    command = ["dedup", "a b", "--database", "postgresql://me:secret@host/db", "--table=t", "\udcff\x1b"]
    assert show_command(command) == r"simsql dedup 'a b' --database … --table=t '\udcff\x1b'"
    assert show_command(["--database=host=h password=secret"]) == "simsql --database=…"
    assert len(show_command(["x" * 9999])) < 2100


def test_a_report_needs_a_file_of_its_own_and_clusters(tmp_path, home):
    path = write_lines(tmp_path / "texts.jsonl", [{"text": "some words"}])
    same = tmp_path / "same"
    run("dedup", path, "--report", same, "--output", same, home=home).failed(2, "--output and --report")
    run("dedup", path, "--report", same, "--explain", "a", "b", home=home).failed(2, "leave out")
    run("dedup", path, "--report", tmp_path / "missing" / "page", home=home).failed(2, "not a folder")
