"""Recipe: one frozen description of how a text becomes a fingerprint, and the recipes of other programs."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Literal, TypeAlias, get_args

from simsql.errors import UsageError
from simsql.fingerprint.features import IdfTable
from simsql.fingerprint.hashes import HashKind

TokenKind = Literal["words", "characters", "trigrams", "jieba", "phash"]
Step = Literal["nfkc", "casefold", "lower", "marks"]
WeightKind = Literal["set", "log", "tf"]
ShortKind = Literal["none", "exact"]
WordNumber = Literal[0, 1, 2, 3]

# The last part of every id: the revision of the definitions that the fields do not name, such as normalisation,
# character classes, hashes and the logarithm. A change of one of them that changes a fingerprint needs a new one.
Revision = Literal[1, 2]

# Multiplied by the weights of any text that fits into memory, this stays far below the 2**62 of a vote.
CONSTANT_AT_MOST = 1_000_000

_ID = re.compile(
    rf"(?P<tokens>{'|'.join(get_args(TokenKind))})(?P<shingles>[1-9]+)"
    rf"-(?P<weight>{'|'.join(get_args(WeightKind))})"
    r"(?:-norm\.(?P<normalise>[a-z+]+))?"
    rf"(?:-(?P<hash>{'|'.join(get_args(HashKind))}))?"
    r"(?:-(?P<cyclic>cyclic))?"
    r"(?:-tie(?P<tie>1))?"
    r"(?:-class(?P<classes>(?:\.[a-z0-9_]+\.[0-9]+)+))?"
    r"(?:-min\.(?P<least>[0-9]+)(?:\.(?P<short>exact))?)?"
    r"(?:-word\.(?P<word>[0-9]))?"
    r"-(?P<revision>[12])"
)
_NAME = re.compile(r"[a-z0-9_]+")
_VERSION = re.compile(r"[A-Za-z0-9_.]+")
_SHAPE = re.compile(r"[A-Za-z0-9_.@+-]+")


NOT_A_PICTURE = "the recipe phash is for pictures in files, which simsql dedup reads, and not for texts"


@dataclass(frozen=True, slots=True)
class Pattern:
    """Tokens from a regular expression: its matches in order, or with `characters` their characters.

    Raises ValueError for an expression that `re` rejects or that matches the empty text.
    """

    expression: str
    characters: bool = False

    def __post_init__(self) -> None:
        _check_choice("characters", self.characters, (False, True))
        if not isinstance(self.expression, str):
            raise UsageError(f"an expression must be a str, not {self.expression!r}")
        try:
            empty = re.search(self.expression, "")
        except (re.error, OverflowError, RecursionError) as error:
            raise UsageError(f"{self.expression!r} is not a regular expression: {error}") from None
        if empty:
            raise UsageError(f"{self.expression!r} matches the empty text, which cannot be a token")

    @property
    def id(self) -> str:
        """The part of a recipe's id that identifies the expression."""
        kind = "letters" if self.characters else "pattern"
        return f"{kind}.{_digest([self.expression])}."


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Tokens from a function that takes a normalised text and returns an iterable of str.

    `name` and `version` identify the function in the id of a recipe, so change them if its tokens change. To use
    `workers`, pickle must be able to import the function by name. Raises ValueError unless the name consists of
    a-z, 0-9 and _, and the version of letters, digits, _ and dots.
    """

    name: str
    version: str
    function: Callable[[str], Sequence[str]] = field(compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise UsageError(f"the name of a tokenizer must consist of a-z, 0-9 and _, not {self.name!r}")
        if not isinstance(self.version, str) or not _VERSION.fullmatch(self.version):
            raise UsageError(
                f"the version of a tokenizer must consist of letters, digits, _ and dots, not {self.version!r}"
            )

    @property
    def id(self) -> str:
        """The part of a recipe's id that identifies the function."""
        return f"custom.{self.name}.{self.version}."


Tokens: TypeAlias = TokenKind | Pattern | Tokenizer

_NORMAL: tuple[Step, ...] = ("nfkc", "casefold", "marks")


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a text becomes features and weights. Fingerprints of different recipes cannot be compared.

    tokens
        "words": runs of letters, digits and vowel signs; scripts without spaces between words are cut into short
        runs of characters; an emoji is a word. "characters": the characters of
        those words. "trigrams": those of PostgreSQL's pg_trgm, three characters in a row of each word, with two
        spaces before it and one behind it, for titles and names. "jieba": Chinese words, found by jieba (the `zh`
        extra). Or a Pattern or Tokenizer.
        "phash": no tokens, but the perceptual hash of a picture (the `images` extra). It takes no other options.
    shingles
        The lengths, in tokens, of the runs of tokens that are features: one to nine, ascending. A text with fewer
        tokens than the shortest length has one feature, the whole text.
    weight
        The weight of a feature that occurs n times in the text: "set" 1, "log" 2 + floor(log2 n), "tf" n.
    normalise
        The steps applied to a text first, in this order: "nfkc" (Unicode's compatibility form), "casefold" or
        "lower" (letter case), "marks" (drop optional marks and format characters).
    hash
        The 64-bit hash of a feature: "splitmix", or a named hash of the tokens
        of the shingle, joined by a space, or by nothing if they are characters: "fnv1" and "fnv1a" of the UTF-8,
        "fnv1utf16" of the UTF-16 code units, "md5" for the first and "md5low" for the last eight bytes of MD5,
        big-endian, "xxh3" (the `xxh3` extra), and "jenkins" for lookup3 of the UTF-8, as simhash-cpp used it.
    cyclic
        Whether shingles continue from the end of the text to its beginning: as many shingles as tokens.
    tie
        The value of a bit, 0 or 1, if the features with this bit weigh as much as those without it.
    stop_words
        Use only shingles that contain at least one of these words, which are rare in advertisements and menus
        (Theobald, Siddharth, Paepcke: "SpotSigs", SIGIR 2008). If empty, use all shingles.
    idf
        Weights of features by their rarity, which multiply the other weights: see IdfTable.
    class_weights
        Classes of text and the factors of their weights, such as ("title", 3), for `simhash_parts` and
        `simhash_html`.
    min_features
        The number of distinct features that a text needs for a meaningful fingerprint.
    short
        The fingerprint of a text with fewer features: "none" for no fingerprint, or "exact" for a hash of all its
        features, so that it only matches texts with the same features.
    word
        Which word of a wide fingerprint this is, 0 to 3: each word hashes the same features independently.
    revision
        1, or 2 to fold letters that have several code points after the steps of `normalise`: see FOLDED in
        ``simsql.fingerprint.characters``. What is stored stays comparable, so no default changes it.

    Raises ValueError for other arguments and for arguments that contradict each other.
    """

    tokens: Tokens = "words"
    shingles: tuple[int, ...] = (1, 2)
    weight: WeightKind = "log"
    normalise: tuple[Step, ...] = _NORMAL
    hash: HashKind = "splitmix"
    cyclic: bool = False
    tie: Literal[0, 1] = 0
    stop_words: frozenset[str] = frozenset()
    idf: IdfTable | None = None
    class_weights: tuple[tuple[str, int], ...] = ()
    min_features: int = 1
    short: ShortKind = "none"
    word: WordNumber = 0
    revision: Revision = 1

    def __post_init__(self) -> None:
        if not isinstance(self.tokens, Pattern | Tokenizer) and self.tokens not in get_args(TokenKind):
            kinds = ", ".join(map(repr, get_args(TokenKind)))
            raise UsageError(
                f"tokens must be one of {kinds}, a simsql.fingerprint.Pattern or Tokenizer, not {self.tokens!r}"
            )
        _check_choice("weight", self.weight, get_args(WeightKind))
        _check_choice("hash", self.hash, get_args(HashKind))
        _check_choice("short", self.short, get_args(ShortKind))
        _check_choice("tie", self.tie, (0, 1))
        _check_choice("word", self.word, get_args(WordNumber))
        _check_choice("revision", self.revision, get_args(Revision))
        _check_choice("cyclic", self.cyclic, (False, True))
        _check_shingles(self.shingles)
        _check_steps(self.normalise)
        _check_classes(self.class_weights)
        if not isinstance(self.stop_words, frozenset) or not all(
            isinstance(word, str) for word in self.stop_words
        ):
            raise UsageError(f"stop_words must be a frozenset of str, not {self.stop_words!r}")
        if self.idf is not None and not isinstance(self.idf, IdfTable):
            raise UsageError(f"idf must be an IdfTable, as count_documents returns, not {self.idf!r}")
        if self.idf is not None and self.idf.features not in ("", self.features_id):
            raise UsageError(
                f"the idf table was counted with the features of {self.idf.features}, but this recipe has those of"
                f" {self.features_id}: count the documents with a recipe that has the same features"
            )
        if type(self.min_features) is not int or self.min_features < 1:
            raise UsageError(f"min_features must be an int of at least 1, not {self.min_features!r}")
        if self.of_pictures and self.id != "phash1-set-1":
            raise UsageError(f"the recipe of pictures is phash, which takes no options, not {self.id}")
        if self.short == "exact" and self.min_features == 1:
            raise UsageError("short='exact' needs min_features of at least 2")

    @property
    def id(self) -> str:
        """A short name, such as "words12-log-1", unique among recipes with different fingerprints."""
        tokens = self.tokens if isinstance(self.tokens, str) else self.tokens.id
        parts = [f"{tokens}{''.join(map(str, self.shingles))}", self.weight]
        if self.normalise != _NORMAL:
            parts.append(f"norm.{'+'.join(self.normalise) or 'none'}")
        if self.hash != "splitmix":
            parts.append(self.hash)
        if self.cyclic:
            parts.append("cyclic")
        if self.tie:
            parts.append("tie1")
        if self.class_weights:
            parts.append("class" + "".join(f".{name}.{weight}" for name, weight in self.class_weights))
        if self.min_features > 1:
            parts.append(f"min.{self.min_features}" + (".exact" if self.short == "exact" else ""))
        if self.word:
            parts.append(f"word.{self.word}")
        if self.stop_words:
            parts.append(f"stop.{_digest(sorted(self.stop_words))}")
        if self.idf is not None:
            parts.append(f"idf.{self.idf.digest}")
        return "-".join([*parts, str(self.revision)])

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps of `normalise`, and the one of the revision."""
        return self.normalise if self.revision == 1 else (*self.normalise, "fold")

    @property
    def of_pictures(self) -> bool:
        """Whether it is the perceptual hash of pictures, and not for texts."""
        return self.tokens == "phash"

    @property
    def features_id(self) -> str:
        """The id of the recipe with the same features and hashes, all with the weight 1."""
        alike = replace(
            self, weight="set", tie=0, idf=None, class_weights=(), min_features=1, short="none", word=0
        )
        return alike.id

    @staticmethod
    def from_id(id: str) -> "Recipe":  # noqa: A002 - the name of the property it inverts
        """Return the recipe with this id, or with this name in KNOWN_RECIPES.

        Raises ValueError for a string that is not an id in this version, and for an id that does not spell out
        the recipe: one with a list of words, a table, an expression or a function.
        """
        for name, recipe in [*KNOWN_RECIPES.items(), ("phash", _PHASH)]:
            if id in (name, recipe.id):
                return recipe
        match = _ID.fullmatch(id)
        if match is None:
            # An id of this version, with parts that only its file or the program that created it contains.
            if re.search(r"-[12]\Z", id) and _SHAPE.fullmatch(id) and re.search(r"\.[0-9a-f]{8}|^custom\.", id):
                raise UsageError(
                    f"the recipe {id!r} has parts that its id does not spell out: pass the recipe itself,"
                    " or a file written by write_recipe"
                )
            known = ", ".join(KNOWN_RECIPES)
            raise UsageError(
                f"{id!r} is not the id of a recipe: use an id such as {DEFAULT_RECIPE.id!r}, or one of {known}"
            )
        found = match.groupdict()
        classes = (found["classes"] or "").split(".")[1:]
        steps = found["normalise"]
        fields: dict[str, Any] = {
            "tokens": found["tokens"],
            "shingles": tuple(map(int, found["shingles"])),
            "weight": found["weight"],
            "normalise": _NORMAL if steps is None else tuple(step for step in steps.split("+") if step != "none"),
            "hash": found["hash"] or "splitmix",
            "cyclic": bool(found["cyclic"]),
            "tie": int(found["tie"] or 0),
            "class_weights": tuple(zip(classes[0::2], map(int, classes[1::2]), strict=True)),
            "min_features": int(found["least"] or 1),
            "short": found["short"] or "none",
            "word": int(found["word"] or 0),
            "revision": int(found["revision"]),
        }
        recipe = Recipe(**fields)
        if recipe.id != id:
            raise UsageError(f"{id!r} is not the id of a recipe: did you mean {recipe.id!r}?")
        return recipe


def check_recipe(recipe: object) -> None:
    """Raise TypeError for anything but a Recipe, such as the id of one."""
    if not isinstance(recipe, Recipe):
        message = f"a recipe must be a Recipe, not {type(recipe).__name__}"
        if isinstance(recipe, str):
            message += ": use Recipe.from_id for an id or a name, read_recipe for a file"
        raise TypeError(message)


def _check_choice(name: str, value: object, allowed: Sequence[object]) -> None:
    # 1.0 and True equal 1, but a float must not enter sums of integers.
    if not isinstance(value, type(allowed[0])) or value not in allowed:
        raise UsageError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")


def _check_shingles(lengths: tuple[int, ...]) -> None:
    if (
        not isinstance(lengths, tuple)
        or not lengths
        or not all(type(length) is int and 1 <= length <= 9 for length in lengths)
        or list(lengths) != sorted(set(lengths))
    ):
        raise UsageError(f"shingles must be a tuple of ascending lengths between 1 and 9, not {lengths!r}")


def _check_steps(steps: tuple[Step, ...]) -> None:
    order = get_args(Step)
    if (
        not isinstance(steps, tuple)
        or any(step not in order for step in steps)
        or list(steps) != sorted(set(steps), key=order.index)
        or {"casefold", "lower"} <= set(steps)
    ):
        raise UsageError(
            f"normalise must be a tuple of steps from {order}, in this order and without both casefold and lower,"
            f" not {steps!r}"
        )


def _check_classes(classes: tuple[tuple[str, int], ...]) -> None:
    if not isinstance(classes, tuple) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in classes):
        raise UsageError(f"class_weights must be a tuple of pairs such as ('title', 3), not {classes!r}")
    names = [name for name, _ in classes]
    if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names):
        raise UsageError(f"names in class_weights must consist of a-z, 0-9 and _, not {names!r}")
    if names != sorted(set(names)):
        raise UsageError(f"class_weights must be sorted by name, without duplicates, not {names!r}")
    for name, weight in classes:
        if type(weight) is not int or not 1 <= weight <= CONSTANT_AT_MOST:
            raise UsageError(
                f"the weight of the class {name!r} must be between 1 and {CONSTANT_AT_MOST}, not {weight!r}"
            )


def _digest(parts: Sequence[str]) -> str:
    """Return eight hexadecimal digits that identify these texts."""
    summary = sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        summary.update(len(encoded).to_bytes(8, "big") + encoded)
    return summary.hexdigest()[:8]


DEFAULT_RECIPE = Recipe()
"""The recipe of every function and column that is given none: the single words and word pairs of a text."""
FOLDING_RECIPE = Recipe(revision=2)
"""The default recipe with folded letters: that of commands that read texts and keep no fingerprints."""
_PHASH = Recipe("phash", (1,), "set")

KNOWN_RECIPES: dict[str, Recipe] = {
    "pg_trgm": Recipe("trigrams", (1,), "set"),
    "pypi-simhash": Recipe(
        Pattern(r"[\w\u4e00-\u9fcc]+", characters=True), (4,), "tf", normalise=("lower",), hash="md5low"
    ),
    "pypi-simhash-1.7": Recipe(
        Pattern(r"[\w\u4e00-\u9fcc]+", characters=True), (4,), "tf", normalise=("lower",), hash="md5low", tie=1
    ),
    "simhash-py-words": Recipe(Pattern(r"\S+"), (4,), "tf", normalise=(), hash="md5"),
    "simhash-py-letters": Recipe(Pattern(r"\w+", characters=True), (4,), "tf", normalise=("lower",), hash="md5"),
    "data-juicer-space": Recipe(Pattern(r"[^ ]+"), (6,), "tf", normalise=("lower",), hash="md5"),
    "data-juicer-character": Recipe(
        Pattern(r"(?s:.+)", characters=True), (6,), "tf", normalise=("lower",), hash="md5"
    ),
    "go-simhash": Recipe(
        Pattern(r"[0-9A-Za-z_']+(?:://[0-9A-Za-z_./]+)?"), (1,), "tf", normalise=("lower",), hash="fnv1", tie=1
    ),
    "java-fnv1": Recipe("jieba", (1,), "tf", hash="fnv1utf16", tie=1),
    "fnv1a-words": Recipe("words", (1,), "tf", hash="fnv1a"),
    "fnv1a-shingles": Recipe("words", (3,), "tf", hash="fnv1a"),
}
"""The recipes of other programs, bit for bit, by name: docs/reference/compatibility.md lists them."""
