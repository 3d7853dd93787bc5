"""Exactness: the decisions of a run are those that brute force over all pairs makes by definition."""

import csv
import json
import lzma
import os
import re
from hashlib import blake2b
from itertools import combinations
from pathlib import Path

import corpus
import pytest
import stars
from agreement import check_agreement
from minima import are_candidates, describe, described
from program import run, write_lines

import simsql
from simsql.fingerprint.tokens import hash_tokens

DATA = Path(os.environ.get("SIMSQL_SHARED", Path(__file__).parents[3] / "shared")) / "data"


def fingerprints_of(path):
    """Return what `simsql fingerprint` prints, by id."""
    rows = (line.split("\t") for line in run("fingerprint", path).done().lines)
    return {name: int(number) for number, name in rows}


def jaccard(a, b):
    """Return the Jaccard index of the padded word trigrams of two texts in ASCII."""
    words = (["", "", *re.findall("[a-z0-9]+", text.lower()), "", ""] for text in (a, b))
    left, right = (set(zip(some, some[1:], some[2:], strict=False)) for some in words)
    return len(left & right) / len(left | right) if left | right else 0.0


def all_jaccard(pairs):
    return [jaccard(*pair) for pair in pairs]


def by_definition(texts, fingerprints, compare, distance=12, similarity=0.6, drop=0.7):
    """Return the kept document and the representative of each document."""
    hashes, counts = hash_tokens(list(texts.values()), "words")
    starts = [0, *counts.cumsum().tolist()]
    words = {
        name: blake2b(hashes[start:end].tobytes(), digest_size=16).digest()
        for name, start, end in zip(texts, starts[:-1], starts[1:], strict=True)
    }
    nodes = {}
    for name in sorted(fingerprints, key=lambda name: (-len(texts[name]), name)):
        nodes.setdefault((words[name], fingerprints[name]), []).append(name)
    example = {node: texts[names[0]] for node, names in nodes.items()}
    pairs = [
        (one, other)
        for one, other in sharing_a_band(example)
        if are_candidates(example[one], example[other], distance, similarity)
    ]
    found = compare([(texts[nodes[one][0]], texts[nodes[other][0]]) for one, other in pairs])
    edges = dict(zip(map(frozenset, pairs), found, strict=True))
    central = dict.fromkeys(nodes, 0)
    for pair, value in edges.items():
        for node in pair if value >= drop else ():
            central[node] += round(value * 2**32)
    order = {node: (-central[node], -len(texts[nodes[node][0]]), node) for node in nodes}
    kept, representative = {}, {}
    for component in components(pair for pair, value in edges.items() if value >= similarity):
        found = stars.decide(
            sorted(component, key=order.__getitem__),
            lambda a, b: edges.get(frozenset((a, b)), 0.0),
            similarity,
            drop,
        )
        kept |= found[0]
        representative |= found[1]
    return {
        name: (nodes[kept.get(node, node)][0], nodes[representative.get(node, node)][0])
        for node, names in nodes.items()
        for name in names
    }


def sharing_a_band(texts):
    """Return the pairs of keys whose texts share a band."""
    describe(texts.values())
    buckets = {}
    for key, text in texts.items():
        for band in enumerate(described(text)[2]):
            buckets.setdefault(band, []).append(key)
    return {pair for bucket in buckets.values() for pair in combinations(sorted(bucket), 2)}


def components(pairs):
    """Return the sets of nodes that pairs connect."""
    found = {}
    for one, other in pairs:
        together = found.get(one, {one}) | found.get(other, {other})
        found |= dict.fromkeys(together, together)
    return {id(component): component for component in found.values()}.values()


def check(found, texts, fingerprints, decisions, drop_list):
    """Compare the output of a run with the decisions."""
    sizes = {}
    for _, representative in decisions.values():
        sizes[representative] = sizes.get(representative, 0) + 1
    members = [
        (cluster["representative"], member["id"], member["kept"])
        for cluster in found.clusters
        for member in cluster["members"]
    ]
    assert sorted(members) == sorted(
        (representative, name, kept)
        for name, (kept, representative) in decisions.items()
        if sizes[representative] > 1
    )
    written = [cluster["size"] for cluster in found.clusters]
    assert written == sorted((size for size in sizes.values() if size > 1), reverse=True)
    dropped = []
    compared = [
        (member["id"], other)
        for cluster in found.clusters
        for member in cluster["members"]
        for other in (cluster["representative"], member["kept"])
    ]
    columns = ([texts[name] for name in column] for column in zip(*compared, strict=True))
    similarities = dict(zip(compared, simsql.similarity_many(*columns).tolist(), strict=True))
    for cluster in found.clusters:
        names = [member["id"] for member in cluster["members"]]
        assert cluster["size"] == len(names)
        assert names[0] == cluster["representative"]
        for member in cluster["members"]:
            name, kept, centre = member["id"], member["kept"], cluster["representative"]
            assert member["droppable"] == (name != kept)
            assert member["distance"] == (fingerprints[name] ^ fingerprints[centre]).bit_count()
            assert member["kept_distance"] == (fingerprints[name] ^ fingerprints[kept]).bit_count()
            assert member["similarity"] == round(similarities[name, centre], 6)
            assert member["kept_similarity"] == round(similarities[name, kept], 6)
            assert names.index(kept) <= names.index(name)
            dropped += [name] * (name != kept)
    assert drop_list.read_text().splitlines() == dropped


@pytest.mark.parametrize("seed", [1, 2])
def test_generated_texts(tmp_path, home, seed):
    texts = corpus.make_texts(seed, families=100)
    path, drop = write_lines(tmp_path / "texts.jsonl", texts), tmp_path / "drop"
    fingerprints = fingerprints_of(path)
    decisions = by_definition(texts, fingerprints, all_jaccard)
    found = run("dedup", path, "--drop-list", drop, home=home).done()
    check(found, texts, fingerprints, decisions, drop)
    # The corpus has what is tested: copies, drops in favour of others, and documents kept beside a representative.
    kinds = {(name == kept, kept == centre) for name, (kept, centre) in decisions.items()}
    assert kinds >= {(True, True), (False, True), (True, False)}
    assert len(set(fingerprints.values())) < len(fingerprints)

    other = dict(reversed(texts.items()))
    again = run("dedup", write_lines(tmp_path / "other.jsonl", other), "--workers", "1", home=home).done()
    assert [without_places(cluster) for cluster in again.clusters] == [
        without_places(cluster) for cluster in found.clusters
    ]


def without_places(cluster):
    members = [{key: value for key, value in member.items() if key != "place"} for member in cluster["members"]]
    return cluster | {"members": members}


def test_fingerprints_alone(tmp_path, home):
    """Without similarities, documents are kept within the distance."""
    texts = corpus.make_texts(1, families=60)
    path, drop = write_lines(tmp_path / "texts.jsonl", texts), tmp_path / "drop"
    fingerprints = fingerprints_of(path)
    found = run("dedup", path, "--similarity", "0", "--distance", "7", "--drop-list", drop, home=home).done()
    near = corpus.pairs(fingerprints.values(), 7)
    dropped = set(drop.read_text().splitlines())
    kept = {name: fingerprint for name, fingerprint in fingerprints.items() if name not in dropped}
    assert len(set(kept.values())) == len(kept)
    assert not corpus.pairs(kept.values(), 7)
    members = {member["id"]: member for cluster in found.clusters for member in cluster["members"]}
    assert set(members) == {
        name
        for name, fingerprint in fingerprints.items()
        if list(fingerprints.values()).count(fingerprint) > 1 or any(fingerprint in pair for pair in near)
    } - {name for name in kept if name not in members}
    for member in members.values():
        assert member["similarity"] is None
        assert member["kept_similarity"] is None
        assert member["kept_distance"] == (fingerprints[member["id"]] ^ fingerprints[member["kept"]]).bit_count()
        assert member["kept_distance"] <= 7
        assert member["kept"] not in dropped


def test_civil_codes(tmp_path):
    """9,107 sections of American civil codes, which states copied from each other and edited: 41 million pairs."""
    path, labels = DATA / "civil_codes.jsonl.xz", DATA / "civil_codes.pairs.csv"
    for needed in (path, labels):
        if not needed.exists():
            pytest.skip(f"there is no {needed}")
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        texts = {row["id"]: row["text"] for row in map(json.loads, lines)}

    def compare(pairs):
        return simsql.similarity_many(*zip(*pairs, strict=True)).tolist()

    fingerprints = fingerprints_of(path)
    decisions = by_definition(texts, fingerprints, compare)
    found = run("dedup", path, "--drop-list", tmp_path / "drop").done()
    check(found, texts, fingerprints, decisions, tmp_path / "drop")
    with labels.open(newline="", encoding="utf-8") as rows:
        labelled = {
            frozenset((row["id_a"], row["id_b"])): float(row["jaccard_word3"]) for row in csv.DictReader(rows)
        }
    check_agreement(found.clusters, labelled)
