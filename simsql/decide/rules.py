"""The rules of a decision: what counts as similar, and which of similar documents is kept."""

from dataclasses import dataclass
from enum import StrEnum

from simsql.errors import UsageError

DROP_SIMILARITY = 0.7
FEATURES_SIMILARITY, FEATURES_DROP_SIMILARITY = 0.5, 0.6
PICTURE_DROP_SIMILARITY = 0.95
"""The similarity from which on a picture is dropped by default: see docs/guides/images.md for the measurements."""


class Protected(StrEnum):
    """In what texts must not differ if one is dropped in favour of the other."""

    NUMBERS = "numbers"
    """Their numbers, one after the other."""
    SYMBOLS = "symbols"
    """Their signs, one after the other, such as those of - 5, C++ or a != b; not the punctuation of sentences."""


class Keep(StrEnum):
    """Which of similar documents is kept."""

    CENTRAL = "central"
    """The one that is most similar to the others."""
    FIRST = "first"
    """The one that was read first."""
    LONGEST = "longest"
    """The one with the longest text, or the picture with the most pixels."""
    NEWEST = "newest"
    """The one whose file was modified last and, of the records of one file, the last one."""
    OLDEST = "oldest"
    """The one whose file was modified first and, of the records of one file, the first one."""
    SHORTEST_PATH = "shortest-path"
    """The one whose file has the path with the fewest characters."""


_BY_FILE = (Keep.NEWEST, Keep.OLDEST, Keep.SHORTEST_PATH)


@dataclass(frozen=True)
class Rules:
    """The rules of a decision. Raises UsageError for values out of range."""

    distance: int = 12
    """Compare texts whose fingerprints differ in up to this many bits (0 to 64), more if sketches are near."""
    similarity: float = 0.6
    """Report texts that are at least this similar (0.0 to 1.0); 0 groups them by distance alone."""
    drop_similarity: float | None = None
    """Drop texts that are at least this similar to one that is kept; by default 0.7, or `similarity` if higher."""
    keep: Keep = Keep.CENTRAL
    keep_field: str | None = None
    """Keep the document with the highest value of this field instead."""
    keep_under: tuple[str, ...] = ()
    """Drop no document below these folders, or in these files, and keep them in favour of others. Absolute paths
    without links, as `simsql.documents.storable` spells them."""
    to_archive: bool = False
    """Whether the documents of `keep_under` are an archive: only the others are decided about."""
    protect: tuple[Protected, ...] = ()
    """Texts that differ in one of these are never dropped for each other, only reported."""
    within: tuple[str, ...] = ()
    """Compare only records with equal values of these fields."""
    within_folder: int = 0
    """Compare only documents whose paths have the same folders up to this depth."""
    exact: bool = False
    """Whether only identical texts are found."""
    by_features: bool = False
    """Whether texts are compared by the features of the recipe, instead of by word trigrams."""

    def __post_init__(self) -> None:
        if not 0 <= self.distance <= 64:
            raise UsageError(f"distance must be between 0 and 64, not {self.distance}")
        if not 0 <= self.similarity <= 1:
            raise UsageError(f"similarity must be between 0 and 1, not {self.similarity}")
        if self.exact and (self.protect or self.similarity < 1):
            raise UsageError(
                "--exact finds identical texts: leave out --similarity, --drop-similarity and --protect"
            )
        if self.drop_similarity is None:
            return
        if not self.checks_texts:
            raise UsageError("--drop-similarity needs the texts, which --similarity 0 does not compare: omit one")
        if not self.similarity <= self.drop_similarity <= 1:
            raise UsageError(
                f"--drop-similarity must be between --similarity ({self.similarity}) and 1, not"
                f" {self.drop_similarity}"
            )

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of records whose values decide: that of `keep_field` first, then those of `within`."""
        return (*filter(None, [self.keep_field]), *self.within)

    @property
    def checks_texts(self) -> bool:
        """Whether texts are compared, and not fingerprints alone."""
        return self.similarity > 0

    @property
    def drop(self) -> float:
        """The similarity from which on a document is dropped."""
        if not self.checks_texts:
            return 0.0
        least = FEATURES_DROP_SIMILARITY if self.by_features else DROP_SIMILARITY
        return max(least, self.similarity) if self.drop_similarity is None else self.drop_similarity

    @property
    def by_value(self) -> bool:
        """Whether a value of each document decides which one is kept: that of a field, or one of its file."""
        return self.keep_field is not None or self.keep in _BY_FILE

    @property
    def by_file(self) -> bool:
        """Whether the file of a document matters."""
        return self.keep in _BY_FILE or bool(self.keep_under)

    def protects(self, path: str) -> bool:
        """Return whether the documents in a file are never dropped, given its path as in `keep_under`."""
        return any(path == under or path.startswith(f"{under.rstrip('/')}/") for under in self.keep_under)
