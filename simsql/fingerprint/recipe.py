"""Recipe: one frozen description of how a text becomes a fingerprint, and the recipes of other programs."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Literal, TypeAlias, get_args

from simsql.fingerprint.idf import IdfTable

TokenKind = Literal["words", "characters", "jieba"]
Step = Literal["nfkc", "casefold", "lower", "marks"]
WeightKind = Literal["set", "log", "tf"]
HashKind = Literal["splitmix", "fnv1", "fnv1a", "fnv1utf16", "md5", "md5low", "xxh3"]
ShortKind = Literal["none", "exact"]

# The last part of every id. It counts the definitions that the fields do not name: normalisation, character
# classes, hashes and the logarithm. A change to any of them that changes a fingerprint raises it.
REVISION = 1

# Times the weights of a text of any length that fits into memory, this stays far below the 2**62 of a vote.
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
    rf"-{REVISION}"
)
_NAME = re.compile(r"[a-z0-9_]+")
_VERSION = re.compile(r"[A-Za-z0-9_.]+")
_SHAPE = re.compile(r"[A-Za-z0-9_.@+-]+")


@dataclass(frozen=True, slots=True)
class Pattern:
    """Tokens are what a regular expression of `re` matches, in order, or with `characters` its characters.

    Raises ValueError for an expression that `re` refuses or that matches the empty text.
    """

    expression: str
    characters: bool = False

    def __post_init__(self) -> None:
        _check_choice("characters", self.characters, (False, True))
        if not isinstance(self.expression, str):
            raise ValueError(f"an expression must be a str, not {self.expression!r}")  # noqa: TRY004 - as documented
        try:
            empty = re.search(self.expression, "")
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{self.expression!r} is no regular expression: {error}") from None
        if empty:
            raise ValueError(f"{self.expression!r} matches the empty text, which is no token")

    @property
    def id(self) -> str:
        """What stands for the expression in the id of a recipe."""
        kind = "letters" if self.characters else "pattern"
        return f"{kind}.{_digest([self.expression])}."


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Tokens are what a function makes of a normalised text: an iterable of str.

    `name` and `version` stand for the function in the id of a recipe, so they change when its tokens change.
    With `workers` the function must be one that pickle can find by its name. Raises ValueError for a name that is
    not of a-z, 0-9 and _, and for a version that is not of letters, digits, _ and dots.
    """

    name: str
    version: str
    function: Callable[[str], Sequence[str]] = field(compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ValueError(f"the name of a tokenizer is of a-z, 0-9 and _, not {self.name!r}")
        if not isinstance(self.version, str) or not _VERSION.fullmatch(self.version):
            raise ValueError(f"the version of a tokenizer is of letters, digits, _ and dots, not {self.version!r}")

    @property
    def id(self) -> str:
        """What stands for the function in the id of a recipe."""
        return f"custom.{self.name}.{self.version}."


Tokens: TypeAlias = TokenKind | Pattern | Tokenizer

_NORMAL: tuple[Step, ...] = ("nfkc", "casefold", "marks")


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a text becomes features and weights. Fingerprints of different recipes cannot be compared.

    tokens
        "words": runs of letters, digits and vowel signs; scripts that put no spaces between words are cut into
        short runs of characters; an emoji is a word (see `simsql.fingerprint.tokens`). "characters": the
        characters of those words, without what stands between the words. "jieba": Chinese words, as the extra
        `zh` finds them. Or a Pattern, or a Tokenizer of your own.
    shingles
        The lengths, in tokens, of the runs of tokens that are features: one to nine, ascending. A text that
        is shorter than the shortest has one feature, all of it.
    weight
        What a feature that occurs n times in the text weighs: "set" 1, "log" 2 + floor(log2 n), "tf" n.
    normalise
        What is done to a text first, in this order: "nfkc" (Unicode's compatibility form), "casefold" or
        "lower" (letter case), "marks" (drop optional marks and format characters).
    hash
        What makes 64 bits of a feature: "splitmix" (see `simsql.fingerprint.hashes`), or one of the named hashes
        of its spelling, the tokens of a shingle joined by one space, or by nothing if they are characters:
        "fnv1" and "fnv1a" of the UTF-8, "fnv1utf16" of the UTF-16 code units, "md5" its first and "md5low" its
        last eight bytes, big-endian, and "xxh3", for which the extra `xxh3` is needed.
    cyclic
        Whether shingles go on at the beginning of the text where it ends: as many shingles as tokens.
    tie
        The bit where the features that have it weigh as much as those that have it not: 0 or 1.
    stop_words
        Only shingles that hold at least one of these words are features: in advertisements and menus there are
        few (Theobald, Siddharth, Paepcke: "SpotSigs", SIGIR 2008). Empty: all shingles are.
    idf
        Weights of features by how rare they are, which multiply the others: see IdfTable.
    class_weights
        Names of classes of text, such as ("title", 3), with the constant that multiplies the weights of their
        features: for `simhash_parts` and `simhash_html`.
    min_features
        How many different features a text needs at least for a fingerprint that means something.
    short
        What a text with fewer has: "none", no fingerprint, or "exact", a hash of all its features, so that only
        texts with the same ones match.

    Raises ValueError for any other argument, and for those that contradict each other.
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

    def __post_init__(self) -> None:
        if not isinstance(self.tokens, Pattern | Tokenizer) and self.tokens not in get_args(TokenKind):
            kinds = ", ".join(map(repr, get_args(TokenKind)))
            raise ValueError(
                f"tokens must be one of {kinds}, a simsql.fingerprint.Pattern or Tokenizer, not {self.tokens!r}"
            )
        _check_choice("weight", self.weight, get_args(WeightKind))
        _check_choice("hash", self.hash, get_args(HashKind))
        _check_choice("short", self.short, get_args(ShortKind))
        _check_choice("tie", self.tie, (0, 1))
        _check_choice("cyclic", self.cyclic, (False, True))
        _check_shingles(self.shingles)
        _check_steps(self.normalise)
        _check_classes(self.class_weights)
        if not isinstance(self.stop_words, frozenset) or not all(
            isinstance(word, str) for word in self.stop_words
        ):
            raise ValueError(f"stop_words must be a frozenset of str, not {self.stop_words!r}")
        if self.idf is not None and not isinstance(self.idf, IdfTable):
            raise ValueError(f"idf must be an IdfTable, which count_documents makes, not {self.idf!r}")
        if self.idf is not None and self.idf.features not in ("", self.features_id):
            raise ValueError(
                f"the idf table has the features of {self.idf.features}, and this recipe has those of"
                f" {self.features_id}: count the documents by a recipe with the same features"
            )
        if type(self.min_features) is not int or self.min_features < 1:
            raise ValueError(f"min_features must be an int of at least 1, not {self.min_features!r}")
        if self.short == "exact" and self.min_features == 1:
            raise ValueError("short='exact' needs min_features of 2 or more: no text has fewer than one")

    @property
    def id(self) -> str:
        """A short name, such as "words12-log-1", that no recipe with other fingerprints shares."""
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
        if self.stop_words:
            parts.append(f"stop.{_digest(sorted(self.stop_words))}")
        if self.idf is not None:
            parts.append(f"idf.{self.idf.digest}")
        return "-".join([*parts, str(REVISION)])

    @property
    def features_id(self) -> str:
        """The id of the recipe with the same features and hashes, all of which weigh 1."""
        alike = replace(self, weight="set", tie=0, idf=None, class_weights=(), min_features=1, short="none")
        return alike.id

    @staticmethod
    def from_id(id: str) -> "Recipe":  # noqa: A002 - the name of the property it inverts
        """Return the recipe of this id, or of this name in KNOWN_RECIPES.

        Raises ValueError for a name that is no id in this version, and for an id that stands for more than it
        says: a list of words, a table, an expression or a function of the caller's.
        """
        for name, recipe in KNOWN_RECIPES.items():
            if id in (name, recipe.id):
                return recipe
        match = _ID.fullmatch(id)
        if match is None:
            # Written so by this version, but for what its file or the program that made it holds.
            if id.endswith(f"-{REVISION}") and _SHAPE.fullmatch(id) and re.search(r"\.[0-9a-f]{8}|^custom\.", id):
                raise ValueError(
                    f"the recipe {id!r} has parts that its id does not spell out: give the recipe itself,"
                    " or the file that write_recipe has made"
                )
            known = ", ".join(KNOWN_RECIPES)
            raise ValueError(
                f"{id!r} is not the id of a recipe: expected one such as {DEFAULT_RECIPE.id!r}, or {known}"
            )
        found = match.groupdict()
        classes = (found["classes"] or "").split(".")[1:]
        fields: dict[str, Any] = {
            "tokens": found["tokens"],
            "shingles": tuple(map(int, found["shingles"])),
            "weight": found["weight"],
            "normalise": _steps(found["normalise"]),
            "hash": found["hash"] or "splitmix",
            "cyclic": bool(found["cyclic"]),
            "tie": int(found["tie"] or 0),
            "class_weights": tuple(zip(classes[0::2], map(int, classes[1::2]), strict=True)),
            "min_features": int(found["least"] or 1),
            "short": found["short"] or "none",
        }
        recipe = Recipe(**fields)
        if recipe.id != id:
            raise ValueError(f"{id!r} is not the id of a recipe: did you mean {recipe.id!r}?")
        return recipe


def check_recipe(recipe: object) -> None:
    """Raise TypeError for what is no recipe, such as the id of one."""
    if not isinstance(recipe, Recipe):
        message = f"a recipe must be a Recipe, not {type(recipe).__name__}"
        if isinstance(recipe, str):
            message += ": Recipe.from_id gives that of an id or a name, read_recipe that in a file"
        raise TypeError(message)


def _steps(written: str | None) -> tuple[str, ...]:
    if written is None:
        return _NORMAL
    return () if written == "none" else tuple(written.split("+"))


def _check_choice(name: str, value: object, allowed: Sequence[object]) -> None:
    # 1.0 and True are equal to 1, but a float has no place in sums of integers.
    if not isinstance(value, type(allowed[0])) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")


def _check_shingles(lengths: tuple[int, ...]) -> None:
    if (
        not isinstance(lengths, tuple)
        or not lengths
        or not all(type(length) is int and 1 <= length <= 9 for length in lengths)
        or list(lengths) != sorted(set(lengths))
    ):
        raise ValueError(f"shingles must be a tuple of ascending lengths from 1 to 9, not {lengths!r}")


def _check_steps(steps: tuple[Step, ...]) -> None:
    order = get_args(Step)
    if (
        not isinstance(steps, tuple)
        or any(step not in order for step in steps)
        or list(steps) != sorted(set(steps), key=order.index)
        or {"casefold", "lower"} <= set(steps)
    ):
        raise ValueError(
            f"normalise must be a tuple of steps out of {order}, in this order and not both of casefold and lower,"
            f" not {steps!r}"
        )


def _check_classes(classes: tuple[tuple[str, int], ...]) -> None:
    if not isinstance(classes, tuple) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in classes):
        raise ValueError(f"class_weights must be a tuple of pairs such as ('title', 3), not {classes!r}")
    names = [name for name, _ in classes]
    if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names):
        raise ValueError(f"names in class_weights are of a-z, 0-9 and _, not {names!r}")
    if names != sorted(set(names)):
        raise ValueError(f"class_weights must be in the order of their names, each once, not {names!r}")
    for name, weight in classes:
        if type(weight) is not int or not 1 <= weight <= CONSTANT_AT_MOST:
            raise ValueError(f"a class weighs from 1 to {CONSTANT_AT_MOST}, but {name!r} {weight!r}")


def _digest(parts: Sequence[str]) -> str:
    """Return eight hexadecimal digits that stand for these texts."""
    summary = sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        summary.update(len(encoded).to_bytes(8, "big") + encoded)
    return summary.hexdigest()[:8]


DEFAULT_RECIPE = Recipe()

# What other programs make of a text, bit for bit: docs/compatibility.md says of which versions and calls.
KNOWN_RECIPES: dict[str, Recipe] = {
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
