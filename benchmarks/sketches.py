"""Measure sketches: python -m benchmarks.sketches, which prints Markdown.

1. Speed: processor time beside that of fingerprints, rounds of both taking turns.
2. Estimates: texts of four scripts and copies with some words replaced: bias and standard error, beside what 64
   fair coins would have; then a long text and its first words.
3. The filter: of the pairs within distance 12 that are similar, the share whose sketches pass; and of the others.
4. Decisions: precision, recall and F1 of pairs against brute force, beside MinHash LSH of other packages.

The truth of 4 is found without code of simsql. A word of a Chinese text is a character there.
"""

import csv
import string
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.decisions import Corpus, near_pairs, read_corpora
from benchmarks.figures import markdown_line
from benchmarks.labelled import Pairs, find_alike, find_folder, padded_trigrams, read_lines
from benchmarks.similar_recall import Share
from simsql.dedup.bands import Buckets, Described
from simsql.fingerprint import (
    estimate_similarity,
    minima_of_tokens,
    simhash_items_with_tokens,
    simhash_many,
    similarity_many,
    sketch_distance,
    sketch_many,
)

REPORTED, ESTIMATED = 0.6, 0.55
DISTANCE = 12
_SEED = 7
_ROUNDS = 5
_REPLACED = (0.02, 0.05, 0.1, 0.2, 0.4)
_BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.95, 1.01)
_TEXTS = 2000
_PERMUTATIONS = 128
_LATIN = string.ascii_letters
_CYRILLIC = "абцдефгхийклмнопярстувщхызАБЦДЕФГХИЙКЛМНОПЯРСТУВЩХЫЗ"

Floats = NDArray[np.float64]
Words = list[list[str]]


def speed_table(corpora: Sequence[Corpus]) -> Iterator[str]:
    """Yield the lines of the table of speeds."""
    yield markdown_line(
        ["texts", "fingerprints", "sketches", "both, with tokens", "a sketch, of the time of a fingerprint"]
    )
    yield markdown_line(["---", *["---:"] * 4])
    for corpus in corpora:
        texts = corpus.texts
        tokens = [found for _, _, found, _ in simhash_items_with_tokens(enumerate(texts))]
        work: dict[str, Callable[[], object]] = {
            "fingerprints": partial(simhash_many, texts),
            "sketches": partial(sketch_many, texts),
            "both": lambda: list(simhash_items_with_tokens(enumerate(texts))),  # noqa: B023 - called in the loop
            "alone": lambda: list(map(minima_of_tokens, tokens)),  # noqa: B023
        }
        seconds = {name: float("inf") for name in work}
        for _ in range(_ROUNDS):
            for name, run in work.items():
                start = time.process_time()
                run()
                seconds[name] = min(seconds[name], time.process_time() - start)
        size = sum(len(text.encode()) for text in texts) / 1e6
        rates = [f"{size / seconds[name]:.0f} MB/s" for name in ("fingerprints", "sketches", "both")]
        yield markdown_line([corpus.name, *rates, f"{seconds['alone'] / seconds['fingerprints']:.2f}"])


def _errors(ones: Sequence[str], others: Sequence[str]) -> tuple[Floats, Floats]:
    """Return the similarities of pairs of texts, and the errors of estimates that may be negative."""
    exact = similarity_many(ones, others).data
    differing = np.bitwise_count(sketch_many(ones).data ^ sketch_many(others).data)
    return exact, 1 - differing / 32 - exact


def _join(corpus: Corpus) -> Callable[[Sequence[str]], str]:
    return "".join if corpus.name == "Chinese laws" else " ".join


def edited_copies(words: Words, share: float, chance: np.random.Generator) -> Words:
    """Return copies of texts with this share of their words replaced by words of any text."""
    vocabulary = list(chain.from_iterable(words))
    copies = []
    for own in words:
        replaced = chance.random(len(own)) < share
        drawn = chance.integers(len(vocabulary), size=len(own))
        copies.append([vocabulary[drawn[at]] if replaced[at] else word for at, word in enumerate(own)])
    return copies


def estimate_table(corpora: Sequence[Corpus]) -> Iterator[str]:
    """Yield the lines of the table of errors of estimates."""
    chance = np.random.default_rng(_SEED)
    yield markdown_line(["texts", "similarity", "pairs", "mean error", "standard error", "of 64 coins"])
    yield markdown_line(["---", "---", *["---:"] * 4])
    for corpus in corpora:
        words = [own[:400] for own in corpus.words if len(own) >= 40][:_TEXTS]
        join = _join(corpus)
        exact, errors = (
            np.concatenate(column)
            for column in zip(
                *(
                    _errors(list(map(join, words)), list(map(join, edited_copies(words, share, chance))))
                    for share in _REPLACED
                ),
                strict=True,
            )
        )
        for low, high in pairwise(_BINS):
            here = (exact >= low) & (exact < high)
            yield markdown_line(
                [corpus.name, f"{low:.2g} to {min(high, 1):.2g}", *_error_cells(exact[here], errors[here])]
            )


def _error_cells(exact: Floats, errors: Floats) -> list[str]:
    if not len(exact):
        return ["0", "-", "-", "-"]
    coins = np.sqrt(np.mean(1 - exact**2)) / 8
    return [f"{len(exact):,}", f"{errors.mean():+.4f}", f"{np.sqrt((errors**2).mean()):.3f}", f"{coins:.3f}"]


def excerpt_table(corpora: Sequence[Corpus]) -> Iterator[str]:
    """Yield the lines of the table of long texts and their first words."""
    titles = ["first words", "pairs", "mean similarity", "mean error", "standard error", "of 64 coins"]
    yield markdown_line(["texts of 300 words or more", *titles])
    yield markdown_line(["---", *["---:"] * len(titles)])
    for corpus in corpora:
        long = [own for own in corpus.words if len(own) >= 300][:_TEXTS]
        join = _join(corpus)
        if len(long) < 50:
            continue
        for length in (5, 20, 100, 200):
            exact, errors = _errors([join(own[:length]) for own in long], list(map(join, long)))
            pairs, *cells = _error_cells(exact, errors)
            yield markdown_line([corpus.name, str(length), pairs, f"{exact.mean():.3f}", *cells])


def filter_table(corpora: Sequence[Corpus]) -> Iterator[str]:
    """Yield the lines of the table of pairs that pass the filter."""
    at_most = sketch_distance(REPORTED)
    yield markdown_line(
        ["texts", f"pairs of {REPORTED} or more", "of these pass", "pairs below 0.3", "of these pass"]
    )
    yield markdown_line(["---", *["---:"] * 4])
    for corpus in corpora:
        pairs = np.array(near_pairs(corpus.texts, DISTANCE), dtype=np.int64).reshape(-1, 2)
        sketches = sketch_many(corpus.texts).data
        passes = np.bitwise_count(sketches[pairs[:, 0]] ^ sketches[pairs[:, 1]]) <= at_most
        exact = _similarities(corpus.texts, pairs)
        yield markdown_line([f"{corpus.name}, within {DISTANCE}", *_passing(passes, exact)])
    exact, differing, apart = short_pairs(corpora[0])
    yield markdown_line(["15 to 35 English words", *_passing(differing <= at_most, exact)])
    near = apart <= DISTANCE
    shares = _passing(differing[near] <= at_most, exact[near])
    yield markdown_line([f"15 to 35 English words, within {DISTANCE}", *shares])


def short_pairs(corpus: Corpus) -> tuple[Floats, NDArray[np.uint8], NDArray[np.uint8]]:
    """Return similarity, differing bits of sketches and distance of texts of 15 to 35 words and edited copies.

    A copy has up to four words replaced, removed or inserted, so the two have different numbers of words.
    """
    chance = np.random.default_rng(_SEED)
    vocabulary = list(chain.from_iterable(corpus.words))
    ones, others = [], []
    for own in corpus.words:
        one = own[: int(chance.integers(15, 36))]
        other = list(one)
        for _ in range(int(chance.integers(1, 5))):
            start = int(chance.integers(len(other)))
            removed, inserted = ((1, 1), (1, 0), (0, 1))[chance.integers(3)]
            other[start : start + removed] = [vocabulary[chance.integers(len(vocabulary))]] * inserted
        if 15 <= min(len(one), len(other)) <= max(len(one), len(other)) <= 35:
            ones.append(" ".join(one))
            others.append(" ".join(other))
    differing = np.bitwise_count(sketch_many(ones).data ^ sketch_many(others).data)
    apart = np.bitwise_count(simhash_many(ones).data ^ simhash_many(others).data)
    return similarity_many(ones, others).data, differing, apart


def _passing(passes: NDArray[np.bool_], exact: Floats) -> list[str]:
    cells = []
    for chosen in (exact >= REPORTED, exact < 0.3):
        cells += [f"{chosen.sum():,}", f"{passes[chosen].mean():.4f}" if chosen.any() else "-"]
    return cells


def _similarities(texts: Sequence[str], pairs: NDArray[np.int64]) -> Floats:
    left, right = ([texts[place] for place in pairs[:, side].tolist()] for side in (0, 1))
    return similarity_many(left, right).data


# Decisions


def decision_table(name: str, corpus: Corpus, alike: Pairs) -> Iterator[str]:
    """Yield the lines of a table of ways to find pairs: right are those of REPORTED or more in `alike`."""
    wanted = {pair for pair, index in alike.items() if index >= REPORTED}
    for way, find in ways(corpus):
        start = time.process_time()
        candidates, found = find()
        seconds = time.process_time() - start
        right = len(wanted & found)
        f1 = 2 * right / (len(found) + len(wanted))
        shares = [str(Share(right, len(found))), str(Share(right, len(wanted))), f"{f1:.3f}"]
        yield markdown_line([name, way, f"{candidates:,}", f"{len(found):,}", *shares, f"{seconds:.2f}"])


Found = tuple[int, set[tuple[int, int]]]


def ways(corpus: Corpus) -> Iterator[tuple[str, Callable[[], Found]]]:
    """Yield names of ways to find similar pairs, and functions that return how many were compared, and which."""
    yield "simsql, bands and sketches, texts", partial(_checked, corpus, partial(_by_bands, corpus))
    for estimated, check in ((False, "nothing else"), (True, f"estimates of {ESTIMATED} or more")):
        yield f"simsql, distance {DISTANCE}, {check}", partial(_by_distance, corpus, estimated=estimated)
    for package, candidates in (("datasketch", _by_datasketch), ("gaoya", _by_gaoya), ("rensa", _by_rensa)):
        try:
            module = import_module(package)
        except ModuleNotFoundError as error:
            print(f"{package} is left out: {error}", file=sys.stderr)
        else:
            yield f"{package} MinHash LSH, texts", partial(_checked, corpus, partial(candidates, module, corpus))


def _by_distance(corpus: Corpus, *, estimated: bool) -> Found:
    pairs = found = np.array(near_pairs(corpus.texts, DISTANCE), dtype=np.int64).reshape(-1, 2)
    if estimated:
        sketches = sketch_many(corpus.texts).data
        found = pairs[estimate_similarity(*(sketches[pairs[:, side]] for side in (0, 1))) >= ESTIMATED]
    return len(pairs), set(map(tuple, found.tolist()))


def _by_bands(corpus: Corpus) -> set[tuple[int, int]]:
    _, fingerprints, _, minima = zip(*simhash_items_with_tokens(enumerate(corpus.texts)), strict=True)
    sketches, bands = map(np.concatenate, zip(*minima, strict=True))
    described = Described(np.concatenate([part.data for part in fingerprints]), sketches, bands.T)
    found = (np.sort(pairs, axis=0).T.tolist() for pairs in Buckets(described, DISTANCE, REPORTED).pairs())
    return {(a, b) for pairs in found for a, b in pairs}


def _checked(corpus: Corpus, find: Callable[[], set[tuple[int, int]]]) -> Found:
    pairs = np.array(sorted(find()), dtype=np.int64).reshape(-1, 2)
    return len(pairs), set(map(tuple, pairs[_similarities(corpus.texts, pairs) >= REPORTED].tolist()))


def _spelled(corpus: Corpus) -> Iterator[list[str]]:
    """Yield the padded trigrams of texts as strings, as packages want them."""
    for words in corpus.words:
        yield ["\t".join(trigram) for trigram in padded_trigrams(words)]  # type: ignore[arg-type]


def _by_datasketch(module: Any, corpus: Corpus) -> set[tuple[int, int]]:
    index, found = module.MinHashLSH(threshold=REPORTED, num_perm=_PERMUTATIONS), set()
    for place, trigrams in enumerate(_spelled(corpus)):
        signature = module.MinHash(num_perm=_PERMUTATIONS)
        signature.update_batch([trigram.encode() for trigram in trigrams])
        found |= {(other, place) for other in index.query(signature)}
        index.insert(place, signature)
    return found


def _by_rensa(module: Any, corpus: Corpus) -> set[tuple[int, int]]:
    signatures = module.RMinHash.from_token_sets(list(_spelled(corpus)), _PERMUTATIONS, _SEED)
    index, found = module.RMinHashLSH(REPORTED, _PERMUTATIONS, 32), set()
    for place, signature in enumerate(signatures):
        found |= {(other, place) for other in index.query(signature)}
        index.insert(place, signature)
    return found


def _by_gaoya(module: Any, corpus: Corpus) -> set[tuple[int, int]]:
    # Its own words, because it takes texts; it compares signatures itself, above this threshold.
    index = module.minhash.MinHashStringIndex(
        hash_size=32, jaccard_threshold=0.5, num_bands=42, band_size=3, ngram_range=(3, 3), lowercase=True
    )
    texts = list(map(" ".join, corpus.words))
    index.par_bulk_insert_docs(list(range(len(texts))), texts)
    found = index.par_bulk_query(texts)
    return {(other, place) for place, others in enumerate(found) for other in others if other < place}


def read_pairs_file(folder: Path) -> Pairs:
    """Return the pairs of civil codes in a file that comes with them, with their index of runs of three words."""
    places = {row["id"]: place for place, row in enumerate(read_lines(folder / "civil_codes.jsonl.xz"))}
    with (folder / "civil_codes.pairs.csv").open(encoding="utf-8", newline="") as file:
        return {
            (min(pair), max(pair)): float(row["jaccard_word3"])
            for row in csv.DictReader(file)
            if (pair := (places[row["id_a"]], places[row["id_b"]]))
        }


def in_cyrillic(corpus: Corpus) -> Corpus:
    """Return the same texts in other letters."""
    letters = str.maketrans(_LATIN, _CYRILLIC)
    return Corpus(f"{corpus.name} in Cyrillic letters", [text.translate(letters) for text in corpus.texts])


def main() -> None:
    """Print the tables."""
    folder = find_folder()
    corpora = read_corpora(folder)
    four = [*corpora, in_cyrillic(corpora[0])]
    tables = {
        "Speed": speed_table(four),
        "Errors of estimates": estimate_table(four),
        "A long text and its first words": excerpt_table(four),
        "The filter": filter_table(corpora),
    }
    truths = [find_alike(map(padded_trigrams, corpus.words), REPORTED) for corpus in corpora]
    titles = ["candidates", "found", "precision", "recall", "F1", "CPU seconds"]
    head = [markdown_line(["texts", "pairs by", *titles]), markdown_line(["---", "---", *["---:"] * len(titles)])]
    decisions = [decision_table(corpus.name, corpus, alike) for corpus, alike in zip(corpora, truths, strict=True)]
    decisions.append(decision_table("civil codes, pairs file", corpora[0], read_pairs_file(folder)))
    tables["Decisions"] = chain(head, *decisions)
    for title, lines in tables.items():
        print(f"### {title}\n")
        print("\n".join(lines), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
