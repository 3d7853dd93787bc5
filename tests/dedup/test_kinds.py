"""Kinds of drops, what is never dropped for each other, and what is compared with what."""

import json
import random
import re
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from program import run

from simsql.decide.kinds import Kind, digests_of
from simsql.decide.rules import Protected
from simsql.dedup.remarks import KindCount

BODY = " ".join(f"word{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")
DIGITS = ["7", "12", "0", "00", "19", "\u0663\u0665", "\u0967", "\uff15"]  # ASCII, Arabic, Devanagari, full width
PIECES = st.sampled_from([*DIGITS, "a", "\u00e9", "\u4e2d", "-", "+", "!=", ".", ",", "?", "'", "\ud800", " "])


@given(st.lists(PIECES, max_size=8).map("".join), st.lists(PIECES, max_size=8).map("".join))
def test_digests_are_equal_for_what_they_stand_for(one, other):
    def parts(text):
        signs = [sign for sign in text if not (sign.isalnum() or sign in ".,?' ")]
        return text, re.sub(r"\d", "", text), (re.findall(r"\d+", text), signs)

    digests = [digests_of(text, list(Protected)) for text in (one, other)]
    for mine, others, of_one, of_other in zip(parts(one)[:2], parts(other)[:2], *digests, strict=False):
        assert (mine == others) == (of_one == of_other)
    numbers = [digests_of(text, [Protected.NUMBERS])[2] for text in (one, other)]
    symbols = [digests_of(text, [Protected.SYMBOLS])[2] for text in (one, other)]
    assert (parts(one)[2][0] == parts(other)[2][0]) == (numbers[0] == numbers[1])
    assert (parts(one)[2][1] == parts(other)[2][1]) == (symbols[0] == symbols[1])
    assert digests_of(one)[2] == 0


@pytest.fixture
def decide(tmp_path, home):
    def decide(records, *options):
        """Return what the run says, and the kind of each drop by its id."""
        path = tmp_path / "records.jsonl"
        rows = [{"id": name, **(row if isinstance(row, dict) else {"text": row})} for name, row in records.items()]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        found = run("dedup", path, "--keep", "first", *options, home=home).done()
        clusters = [] if "--explain" in options else found.clusters
        members = [member for cluster in clusters for member in cluster["members"]]
        return found, {member["id"]: member["kind"] for member in members if member["kind"]}

    return decide


def test_the_kind_is_the_first_that_is_true(decide):
    records = {
        "kept": f"{BODY} in 1999, for 5 of us",
        "copy": f"{BODY} in 1999, for 5 of us",
        "shouted": f"{BODY} in 1999 -- for 5 of us!".upper(),
        "other numbers": f"{BODY} in 2024, for 117 of us",
        "more words": f"{BODY} in 1999, for 5 of us and more",
    }
    found, kinds = decide(records)
    assert kinds == {
        "copy": Kind.IDENTICAL,
        "shouted": Kind.SAME_WORDS,
        "other numbers": Kind.NUMBERS,
        "more words": Kind.SIMILAR,
    }
    assert [found.table[kind] for kind in Kind] == ["1"] * 4
    assert "templated" not in found.err


@pytest.mark.parametrize(("protect", "dropped"), [("numbers", "ps"), ("symbols", "pn"), ("numbers,symbols", "p")])
def test_texts_whose_protected_parts_differ_are_reported_and_not_dropped(decide, protect, dropped):
    records = {"kept": f"{BODY} -5", "p": f"{BODY}, -5.", "n": f"{BODY} -6", "s": f"{BODY} 5"}
    found, kinds = decide(records, "--protect", protect)
    assert set(kinds) == set(dropped)
    assert set(decide(records)[1]) == {"p", "n", "s"}
    assert found.groups == {frozenset(records)}


def test_numbers_that_differ_keep_whole_crowds(decide):
    records = {str(number): f"{BODY} {number}" for number in range(600)}
    records |= {f"copy of {number}": f"{BODY} {number}!" for number in range(0, 600, 7)}
    assert set(decide(records, "--protect", "numbers")[1]) == {name for name in records if "copy" in name}
    found, kinds = decide(records)
    assert len(kinds) == len(records) - 1
    assert "drops that are not identical differ in numbers only" in " ".join(found.err.split())


@pytest.mark.parametrize("protect", ["", "words", "numbers;symbols"])
def test_only_numbers_and_symbols_are_protected(lines, protect):
    run("dedup", lines, "--protect", protect).failed(2)


def test_a_text_that_attracts_many_is_remarked(decide):
    records = {str(number): f"{BODY} about {name}" for number, name in enumerate("abcdefghijklmnop")}
    found, kinds = decide(records)
    assert set(kinds.values()) == {Kind.SIMILAR}
    assert "15 of 15 drops that are not identical are in favour of 1 text." in " ".join(found.err.split())


@pytest.mark.parametrize(
    ("collection", "numbers", "others", "attracted", "remarked"),
    [
        ("invoices", 509, 509, [], True),
        ("records", 105, 242, [], True),
        ("manual pages", 1, 120, [35, 13], True),
        ("licences", 0, 775, [285, 124, 88, 73, 27, 24, 12, 10], True),
        ("sources", 11, 305, [21, 18, 15, 13, 13, 11, 11, 10], True),
        ("package documents", 53, 455, [15, 13, 13, 13, 10, 10, 10], True),
        ("news", 5, 154, [], False),
        ("civil codes", 0, 2909, [10, 7, 7, 7], False),
        ("laws", 0, 36, [2], False),
        ("two editions", 2, 2, [], False),
    ],
)
def test_the_remark_tells_measured_collections_apart(collection, numbers, others, attracted, remarked):
    count = KindCount()
    kept = [text for text, size in enumerate(attracted) for _ in range(size)]
    kept += range(-1, len(kept) - others - 1, -1)
    for drop, text in enumerate(kept):
        count.add(Kind.NUMBERS if drop < numbers else Kind.SIMILAR, text)
    for _ in range(1000):
        count.add(Kind.IDENTICAL, 0)
    assert (count.remark() is not None) == remarked, collection


def test_identical_texts_alone(decide):
    records = {"a": BODY, "b": BODY, "c": BODY.upper(), "d": "?!", "e": "?!", "f": f"{BODY} more"}
    found, kinds = decide(records, "--exact")
    assert kinds == {"b": Kind.IDENTICAL, "e": Kind.IDENTICAL}
    assert found.groups == {frozenset("ab"), frozenset("de")}
    reasons = [
        run("dedup", found_path(found), "--exact", "--explain", "a", other).done().lines[-1] for other in "bc"
    ]
    assert reasons[0].startswith("together: they are identical; ")
    assert reasons[1] == "apart: they are not identical"


def found_path(found):
    return next(member["place"] for cluster in found.clusters for member in cluster["members"]).rpartition(":")[0]


@pytest.mark.parametrize("other", [["--similarity", "0.9"], ["--protect", "numbers"], ["--similarity", "0"]])
def test_exact_excludes_what_compares(lines, other):
    run("dedup", lines, "--exact", *other).failed(2, "--exact finds identical texts")


def test_only_records_of_one_value_are_compared(decide):
    records = {
        name: {"text": BODY, "language": name[0], "split": int(name[1])} for name in ("a1", "a2", "b1", "b2")
    }
    records |= {"none": {"text": BODY}, "null": {"text": BODY, "language": None}}
    assert set(decide(records)[1]) == set(records) - {"a1"}
    assert set(decide(records, "--within", "language")[1]) == {"a2", "b2", "null"}
    assert set(decide(records, "--within", "language", "--within", "split")[1]) == {"null"}
    found, _ = decide(records, "--within", "language", "--explain", "a1", "b1", "--format", "jsonl")
    assert "different scopes" in found.lines[0]


def test_a_field_that_no_document_has_is_an_error(lines):
    message = "no document has a field 'label': choose with --within"
    run("dedup", lines, "--within", "label").failed(1, message)
    run("dedup", lines, "--within", "text", "--within", "label").failed(1, message)


def test_only_documents_of_one_folder_are_compared(tmp_path, home, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in ("x/a/1.txt", "x/a/2.txt", "x/b/1.txt", "y/a/1.txt", "top.txt"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(BODY)

    def groups(depth, *paths):
        paths = paths or ("x", "y", "top.txt")
        return run("dedup", *paths, "--within-folder", depth, home=home).done().groups

    assert len(next(iter(groups("0")))) == 5
    here = tmp_path.absolute()
    folders = len(here.parts) - 1  # the root is none
    assert sorted(map(len, groups(str(folders), here))) == [5]
    assert sorted(map(len, groups(str(folders + 1), here))) == [3]
    assert groups("1") == {frozenset({"x/a/1.txt", "x/a/2.txt", "x/b/1.txt"})}
    assert groups("2") == groups("9") == {frozenset({"x/a/1.txt", "x/a/2.txt"})}


def test_columns_of_tables_of_records(tmp_path, home):
    path = tmp_path / "rows.csv"
    path.write_text("id,text,label\n" + "".join(f"{row},{BODY},{row % 2}\n" for row in range(4)))
    found = run("dedup", path, "--within", "label", home=home).done()
    assert found.groups == {frozenset({"0", "2"}), frozenset({"1", "3"})}


@pytest.mark.parametrize("options", [[], ["--protect", "numbers"], ["--exact"]])
def test_each_value_is_decided_as_if_alone_also_in_crowds(decide, options):
    chance = random.Random(1)
    records = {
        str(number): {
            "text": f"{BODY} {chance.randrange(99)} {chance.choice('abc')} {chance.choice('xyz')}",
            "of": of,
        }
        for of in ("one", "other")
        for number in range(400 * len(of), 400 * len(of) + 400)
    }
    found, _ = decide(records, "--within", "of", *options)
    alone = [
        decide({name: row for name, row in records.items() if row["of"] == of}, *options)[0].clusters
        for of in ("one", "other")
    ]
    kept = [
        {member["id"]: (member["kept"], member["kind"]) for cluster in clusters for member in cluster["members"]}
        for clusters in (found.clusters, chain.from_iterable(alone))
    ]
    assert kept[0] == kept[1]
    assert found.out == decide(records, "--within", "of", "--workers", "2", *options)[0].out
