"""The documents in files and streams."""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from simsql.decide.criteria import criterion, rank_values, value_of_file
from simsql.decide.documents import I64, Flags
from simsql.decide.rules import Rules
from simsql.dedup.corpus import Corpus, Names, Source, concatenate
from simsql.dedup.describe import Columns, Described, Files, describe_part
from simsql.documents import DocumentReader, Report, SkipCount, Stages, name_paths, printable, storable
from simsql.documents.parts import PART
from simsql.documents.spool import TextSpool, TokenSpool
from simsql.errors import SimsqlError, UsageError
from simsql.fingerprint import Recipe
from simsql.processes import map_in_processes

_ALONE = 8  # parts that one process describes in the time that other processes take to start
_AT_ONCE = 1 << 14  # documents whose names are in memory
_SHOWN = 5  # places that an error names
_NO_VALUE = 1 - 2**63  # lower than any other, and has a negative


class FileSource(Source):
    """The documents of a reader: `read` them first. `check` is called when they have been read."""

    def __init__(
        self,
        reader: DocumentReader,
        recipe: Recipe,
        rules: Rules,
        workers: int | None,
        texts: TextSpool | None = None,
        check: Callable[["FileSource"], None] | None = None,
    ) -> None:
        self.reader = reader
        self.recipe = recipe
        self.rules = rules
        self.texts = texts
        """The texts, if they are wanted."""
        self._check = check
        self.wordless = SkipCount()
        """The documents without a fingerprint."""
        self._workers = workers or 1

    @property
    def total(self) -> int:
        """The number of documents."""
        return len(self.columns.line)

    def read(self, tokens: TokenSpool, stages: Stages) -> Corpus:
        """Read the documents. If texts are compared, their tokens go to the spool.

        Raises SimsqlError if there are no documents, none has the field that decides, or none is protected.
        """
        with stages.stage("read and fingerprint", self.reader.bytes_total) as report:
            found = list(self._described(tokens if self.rules.checks_texts else None, report))
        if not found:
            raise self.reader.nothing_found()
        self.reader.skips.check_fields()
        self.files: Files = concatenate(each.files for each in found)
        self.columns: Columns = concatenate(each.columns for each in found)
        features = concatenate(each.features for each in found)
        del found
        columns, rules = self.columns, self.rules
        self.protected, values = self._ask_rules()
        if self._check:
            self._check(self)
        preferred = criterion(rules, np.arange(self.total), columns.characters, values, columns.line)
        return Corpus(
            features,
            columns.characters,
            columns.digests,
            preferred,
            self._order_by_name,
            self.recipe.of_pictures,
            self.protected,
            self._scopes(),
        )

    def _described(self, tokens: TokenSpool | None, report: Report) -> Iterator[Described]:
        """Yield what was described. A large file of records is among the files of several parts."""
        describe = partial(describe_part, recipe=self.recipe, rules=self.rules, tokens=tokens, texts=self.texts)
        parts = self.reader.parts()
        if self._workers == 1 or self.reader.is_small(_ALONE):
            described: Iterator[Described] = map(describe, parts)
        else:  # a long text takes as much memory as several parts
            described = map_in_processes(describe, parts, self._workers, lambda part: max(1, part.weight / PART))
        done = files = 0
        for found in described:
            done += found.size
            report(done)
            self.reader.skips.add_all(found.skips)
            self.wordless.add_all(found.wordless)
            if len(found.columns.line):
                yield found._replace(columns=found.columns._replace(file=found.columns.file + files))
                files += len(found.files.status)

    def _ask_rules(self) -> tuple[Flags, I64]:
        """Return which documents the rules protect, and the values that decide, higher for those to keep."""
        rules, columns = self.rules, self.columns
        protected = np.zeros(self.total, dtype=bool)
        values = np.full(self.total, _NO_VALUE)
        if rules.keep_field is not None:
            has_value = np.diff(columns.value.ends, prepend=0) > 0
            if not has_value.any():
                raise SimsqlError(f"no document has a field {rules.keep_field!r}: choose with --keep-field")
            found = columns.value.some(np.flatnonzero(has_value))
            ranks = rank_values(found)
            values[has_value] = [ranks[value] for value in found]
        elif rules.by_value:
            values = self._by_file(lambda path, modified: value_of_file(rules.keep, path, modified), _NO_VALUE)
        if rules.keep_under:
            protected = self._by_file(lambda path, _: rules.protects(path), None).astype(bool)
            if not protected.any():
                self.reader.skips.check_read()  # an archive that is damaged
                raise SimsqlError(
                    f"no document that was read is below {name_paths(rules.keep_under)}: name a folder with"
                    " documents; that of --keep-under has to be among the paths to read, too"
                )
        return protected, values

    def _scopes(self) -> I64 | None:
        """Return a number for each document: only those with the same number are compared."""
        rules, everything = self.rules, np.arange(self.total)
        found: list[list[str]] = []
        if rules.within:
            found.append(self.columns.scope.some(everything))
            values = zip(*(scope.split("\0") for scope in set(found[0])), strict=True)
            if missing := [field for field, some in zip(rules.within, values, strict=True) if not any(some)]:
                raise SimsqlError(f"no document has a field {missing[0]!r}: choose with --within")
        if rules.within_folder:
            paths = self.files.path.some(np.arange(len(self.files.status)))
            parents = (Path(path).parent for path in paths)
            # A root does not count.
            folders = [str(Path(*each.parts[: rules.within_folder + bool(each.anchor)])) for each in parents]
            found.append([folders[file] for file in self.columns.file.tolist()])
        if not found:
            return None
        numbers: dict[tuple[str, ...], int] = {}
        return np.array(
            [numbers.setdefault(key, len(numbers)) for key in zip(*found, strict=True)], dtype=np.int64
        )

    def _by_file(self, ask: Callable[[str, int], int], of_streams: int | None) -> I64:
        """Return a number for each document, given a function of the real path and the time of its file.

        A stream has `of_streams` or, if that is None, what the function returns for its absolute path.
        """
        folders: dict[str, str] = {}
        found = []
        paths = self.files.path.some(np.arange(len(self.files.status)))
        for path, (_, inode, _, modified, _) in zip(paths, self.files.status.tolist(), strict=True):
            if inode >= 0:
                found.append(ask(storable(Path(_real_path(path, folders))), modified))
            elif of_streams is None:
                found.append(ask(storable(Path(path).absolute()) if path else "-", modified))
            else:
                found.append(of_streams)
        return np.array(found, dtype=np.int64)[self.columns.file]

    def read_text(self, position: int) -> str:
        """Return the text of a document, if texts are wanted."""
        assert self.texts  # noqa: S101
        columns = self.columns
        return self.texts.read_at(int(columns.text_start[position]), int(columns.text_size[position]))

    def content_of(self, position: int) -> tuple[int, ...]:
        """Return the file and the line of a document, the same for all names of a file."""
        status = self.files.status[self.columns.file[position], :2]
        return *status.tolist(), int(self.columns.line[position])

    def path_of(self, position: int) -> str:
        """Return the file of a document."""
        return self.files.path.some(self.columns.file[position : position + 1])[0]

    def _order_by_name(self, positions: I64) -> I64:
        # Strings are in the order of their UTF-8, as in the collation "C".
        names = zip(self._names_and_places(positions)[0], positions.tolist(), strict=True)
        return np.array([position for _, position in sorted(names)])

    def _names_and_places(self, positions: I64) -> tuple[list[str], list[str]]:
        """Return the ids of documents, or their places as they were read, and their places on one line."""
        files, number = np.unique(self.columns.file[positions], return_inverse=True)
        paths = [storable(Path(path)) if path else "stdin" for path in self.files.path.some(files)]
        lines = zip(number.tolist(), self.columns.line[positions].tolist(), strict=True)
        bases = [f"{paths[of]}:{line}" if line else paths[of] for of, line in lines]
        ids = zip(self.columns.id.some(positions), bases, strict=True)
        return [id_ or base for id_, base in ids], list(map(printable, bases))

    def _portions(self) -> Iterator[I64]:
        """Yield the positions of all documents, as many at a time as may have their names in memory."""
        for start in range(0, self.total, _AT_ONCE):
            yield np.arange(start, min(start + _AT_ONCE, self.total))

    @cached_property
    def _sorted_hashes(self) -> I64:
        """The hashes of all names, and those of the places of documents that are called otherwise."""
        found = []
        for positions in self._portions():
            names, places = map(_hash, self._names_and_places(positions))
            found += [names, places[places != names]]
        return np.sort(np.concatenate(found))

    def _are_shared(self, called: Sequence[str]) -> list[bool]:
        """Return whether several documents are called so, by their names or places; one of them is."""
        hashes, wanted = self._sorted_hashes, _hash(called)
        second = np.searchsorted(hashes, wanted) + 1
        return ((second < len(hashes)) & (hashes.take(second, mode="clip") == wanted)).tolist()  # type: ignore[no-any-return]

    def names(self, positions: I64) -> Names:
        """Return how the documents at these positions are called."""
        names, places = self._names_and_places(positions)
        return Names(
            names,
            places,
            self.columns.line[positions].tolist(),
            self.files.path.some(self.columns.file[positions]),
            self._are_shared(names),
            self._are_shared(places),
        )

    def find(self, name: str) -> int:
        """Return the position of a document. Raises UsageError if none is called so, or several are."""
        found: list[int] = []
        for which in (0, 1):
            for positions in () if found else self._portions():
                called = self._names_and_places(positions)[which]
                found += positions[[other == name for other in called]].tolist()
        if not found:
            raise UsageError(f"no document is called {printable(name)!r}: name documents as the output does")
        if len(found) > 1:
            places = sorted(self._names_and_places(np.array(found[:_SHOWN]))[1])
            more = ", ..." if len(found) > _SHOWN else ""
            raise UsageError(
                f"{len(found):,} documents are called {printable(name)!r}: name one by its place:"
                f" {', '.join(places)}{more}"
            )
        return found[0]


def _hash(strings: Sequence[str]) -> I64:
    return np.fromiter(map(hash, strings), np.int64, len(strings))


def _real_path(path: str, folders: dict[str, str]) -> str:
    """Return a path without links, given the real paths of folders so far."""
    if os.path.islink(path):  # noqa: PTH114
        return os.path.realpath(path)
    folder, name = os.path.split(path)
    if folder not in folders:
        folders[folder] = os.path.realpath(folder)
    return os.path.join(folders[folder], name)  # noqa: PTH118
