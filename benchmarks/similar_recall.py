"""Measure which similar texts searches find: python -m benchmarks.similar_recall, which prints Markdown.

1. Pairs of a text and an edited copy, in three scripts, whose similarity is just .6, .7 or .8: the share that each
   finder finds, computed in memory, by kind of edit and length, with an interval of 95%.
2. All pairs of sections of the shared texts with a similarity of .6 or more: the share found, in either direction.
3. What searches among these sections cost in a server. They must find exactly the pairs that were found in memory.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Annotated

import numpy as np
import psycopg
import typer
from sqlalchemy import Engine

from benchmarks.edited import KINDS, LENGTHS, Pairs, Source, read_sources
from benchmarks.figures import markdown_line
from benchmarks.finders import DESIGN, FINDERS, Finder, Found
from benchmarks.labelled import find_alike, find_folder, read_lines
from benchmarks.oracle import WrongResultError
from benchmarks.server import backend_seconds, default_folder, run_server
from simsql import DEFAULT_RECIPE, Recipe
from simsql.database import SearchIndex, create_index, load_rows, open_engine
from simsql.fingerprint import compares_features
from simsql.fingerprint.extract import extract_features
from simsql.fingerprint.features import padded_trigrams
from simsql.fingerprint.tokens import hash_tokens

SIMILARITIES = (0.6, 0.7, 0.8)
_SECTION_CHARACTERS = 20
_PARAGRAPH = "\n\n"


@dataclass(frozen=True)
class Case:
    """Pairs of one script, kind of edit, similarity and class of length, which begins at so many words."""

    script: str
    kind: str
    words: int
    similarity: float
    pairs: Pairs

    def label(self) -> list[str]:
        """Return the cells that say what it is, without the script."""
        longest = dict(LENGTHS)[self.words]
        return [f"{self.similarity}", self.kind, f"{self.words}-{longest}"]


@dataclass(frozen=True)
class Share:
    """How many of `all` pairs are found."""

    found: int
    all: int

    def __str__(self) -> str:
        if not self.all:
            return "-"
        low, high = self.interval()
        return f"{self.found / self.all:.3f} ({low:.3f}-{high:.3f})"

    def interval(self) -> tuple[float, float]:
        """Return the bounds of the interval of 95% (Wilson, JASA 1927)."""
        z, share, count = 1.96, self.found / self.all, self.all
        middle = share + z * z / (2 * count)
        spread = z * sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2)
        low, high = (middle - spread) / (1 + z * z / count), (middle + spread) / (1 + z * z / count)
        return max(0.0, low), min(1.0, high)


def make_cases(sources: dict[str, Source], count: int) -> Iterator[Case]:
    """Yield `count` pairs for each kind of edit, length and similarity, from all scripts."""
    each = -(-count // len(sources))
    for similarity in SIMILARITIES:
        for kind in KINDS:
            for words, longest in LENGTHS:
                for script, source in sources.items():
                    pairs = source.pairs(kind, words, longest, similarity, each)
                    yield Case(script, kind, words, similarity, pairs)


def tabulate(cases: Sequence[Case], found: dict[str, list[Found]]) -> Iterator[str]:
    """Yield tables of the shares that each finder found: of all scripts by kind and length, then by script."""

    def table(titles: Sequence[str], label: Callable[[Case], list[str]]) -> Iterator[str]:
        yield markdown_line([*titles, "pairs", *found])
        yield markdown_line([*["---"] * len(titles), *["---:"] * (1 + len(found))])
        groups: dict[tuple[str, ...], list[int]] = {}
        for place, case in enumerate(cases):
            groups.setdefault(tuple(label(case)), []).append(place)
        for cells, places in groups.items():
            together = [join(each[place] for place in places) for each in found.values()]
            yield markdown_line([*cells, f"{len(together[0].mask):,}", *map(show, together)])

    yield from table(["similarity", "edit", "words"], Case.label)
    yield ""
    yield from table(["similarity", "script"], lambda case: [f"{case.similarity}", case.script])


def join(parts: Iterable[Found]) -> Found:
    """Return what was found in all parts."""
    return Found(*map(np.concatenate, zip(*parts, strict=True)))


def show(found: Found) -> str:
    """Return the share that was found, with its interval, and the expected one."""
    expected = found.expected.mean() if len(found.expected) else np.nan
    return str(Share(int(found.mask.sum()), len(found.mask))) + (
        "" if np.isnan(expected) else f", expected {expected:.3f}"
    )


def read_sections() -> list[str]:
    """Return the sections of the civil codes, the paragraphs of the Chinese laws and the hadiths, each once."""
    folder = find_folder()
    texts = [row["text"] for row in read_lines(folder / "civil_codes.jsonl.xz")]
    for law in read_lines(folder / "cn_laws.jsonl.xz"):
        texts += [part for part in law["text"].split(_PARAGRAPH) if len(part) >= _SECTION_CHARACTERS]
    texts += [row["plain"] for row in read_lines(folder / "hadith_darimi.jsonl.xz")]
    return list(dict.fromkeys(texts))


def natural_pairs(sections: Sequence[str], recipe: Recipe) -> Pairs:
    """Return all pairs of sections with a similarity of SIMILARITIES[0] or more, in both directions."""
    if compares_features(recipe):
        features, _, counts = extract_features(sections, recipe)
    else:
        features, counts = padded_trigrams(*hash_tokens(sections, "words"))
    documents = np.split(features, np.cumsum(counts)[:-1])
    alike = np.array(list(find_alike((set(own.tolist()) for own in documents), SIMILARITIES[0])))
    queries, rows = np.concatenate([alike, alike[:, ::-1]]).T.tolist()
    return Pairs([sections[place] for place in queries], [sections[place] for place in rows])


@dataclass
class Cost:
    """Processor time of searches, of the server and of this process, and the rows that they found."""

    seconds: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    def cells(self) -> list[str]:
        """Return the median and the 99th percentile in milliseconds, and the mean of the rows."""
        middle, high = np.quantile(self.seconds, [0.5, 0.99]) * 1000
        return [f"{middle:.2f}", f"{high:.2f}", f"{np.mean(self.rows):.1f}"]


def search_sections(
    engine: Engine, sections: Sequence[str], cases: Sequence[Case], finders: Sequence[Finder], recipe: Recipe
) -> dict[str, Cost]:
    """Search for the pairs among all sections in a server, and return what the searches of each finder cost.

    Raises WrongResultError if a search finds a row that it does not find in memory, or the other way round.
    """
    rows = [row for case in cases for row in case.pairs.rows]
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE section (id int PRIMARY KEY, body text, fingerprint bigint)")
        create_index(connection, "section", "fingerprint", design=DESIGN, recipe=recipe)
        load_rows(connection, "section", ["id", "body"], list(enumerate([*rows, *sections])), text_column="body")
    costs = {finder.name: Cost() for finder in finders}
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE")
        raw = connection.connection.dbapi_connection
        assert isinstance(raw, psycopg.Connection)
        index = SearchIndex(connection, "section")
        for finder in finders:
            cost, row = costs[finder.name], 0
            finder.search(index, rows[0], SIMILARITIES[0])  # the first search of a connection takes longer
            for case in cases:
                expected = finder.finds(case.pairs.queries, case.pairs.rows, case.similarity, recipe).mask
                for query, is_found in zip(case.pairs.queries, expected.tolist(), strict=True):
                    before = time.process_time() + backend_seconds(raw)
                    found = finder.search(index, query, case.similarity)
                    cost.seconds.append(time.process_time() + backend_seconds(raw) - before)
                    cost.rows.append(len(found))
                    if (row in found) != is_found:
                        raise WrongResultError(
                            f"{finder.name}: {query!r} {'misses' if is_found else 'finds'} {rows[row]!r}"
                        )
                    row += 1
    return costs


def main(
    pairs: Annotated[int, typer.Option(help="For each similarity, edit and length.")] = 2000,
    searches: Annotated[int, typer.Option(help="Searches in a server, for each of these and each script.")] = 3,
    seed: Annotated[int, typer.Option(help="Of the edits.")] = 1,
    recipe_id: Annotated[str, typer.Option("--recipe", help="Id of a recipe.")] = DEFAULT_RECIPE.id,
) -> None:
    """Print the tables."""
    recipe = Recipe.from_id(recipe_id)
    cases = list(make_cases(read_sources(seed, recipe), pairs))
    found = {
        finder.name: [finder.finds(case.pairs.queries, case.pairs.rows, case.similarity, recipe) for case in cases]
        for finder in FINDERS
    }
    print("\n".join(tabulate(cases, found)), flush=True)
    sections = read_sections()
    natural = natural_pairs(sections, recipe)
    print(f"\n{len(sections):,} sections with {len(natural.rows):,} pairs of {SIMILARITIES[0]} or more\n")
    sample = [replace(case, pairs=case.pairs.first(searches)) for case in cases]
    with run_server(default_folder(), len(sections), 0) as server:
        engine = open_engine(server.url())
        costs = search_sections(engine, sections, sample, FINDERS, recipe)
        engine.dispose()
    print(markdown_line(["finder", "of all pairs of sections", "CPU ms, median", "99%", "rows"]))
    print(markdown_line(["---", *["---:"] * 4]))
    for finder in FINDERS:
        mask, _ = finder.finds(natural.queries, natural.rows, SIMILARITIES[0], recipe)
        share = Share(int(mask.sum()), len(mask))
        print(markdown_line([finder.name, str(share), *costs[finder.name].cells()]))


if __name__ == "__main__":
    typer.run(main)
