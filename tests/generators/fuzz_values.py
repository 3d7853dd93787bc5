"""Bad values: recipes, files of recipes, fingerprints in text form, URLs of databases, arguments of Python."""

import inspect
import json
import linecache
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from types import GeneratorType
from typing import Any

import numpy as np
import pyarrow as arrow
import typer
from fuzz_files import check_line
from fuzzing import Attempt, Target, WrongError, in_folder, mutate
from program import run

import simsql
from simsql import DEFAULT_RECIPE, Design, Recipe, SimsqlError, UsageError, simhash, simhash_many
from simsql import database as database_package
from simsql import fingerprint as fingerprint_package
from simsql import hamming as hamming_package
from simsql.cli._options import number_between, parse_fingerprint, parse_scope, read_size
from simsql.database import open_engine
from simsql.fingerprint import KNOWN_RECIPES, Pattern, read_recipe, write_recipe
from simsql.hamming import find_pairs

# What Python and numpy say well enough of values of wrong types and shapes, and what is documented.
_SAID_WELL = re.compile(
    "truth value of a|has no attribute|inhomogeneous shape|could not be broadcast|arrays cannot be concatenated"
    r"|too many indices for array|zip\(\) argument 2|too large to convert to C long"
    "|out of bounds for uint64|negative value"
)


def check_raised(error: BaseException, what: str) -> None:
    """An error is one that simsql raises on purpose, of a kind that is documented."""
    frame, line = None, 0
    trace = error.__traceback__
    while trace:
        frame, line = trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next
    assert frame
    source = linecache.getline(frame.f_code.co_filename, line).strip()
    ours = "/simsql/" in frame.f_code.co_filename
    kinds = (SimsqlError, ModuleNotFoundError)
    if isinstance(error, TypeError) or _SAID_WELL.search(str(error)):
        return
    if not (isinstance(error, kinds) and ours and source.startswith("raise")) or not str(error):
        place = f"{Path(frame.f_code.co_filename).name}:{line}"
        raise WrongError(
            f"{type(error).__name__} {place}", f"{what:.600}: {type(error).__name__}: {error!s:.600}\n{source}"
        ) from error


# Recipes

# fmt: off
_PARTS = [
    "words", "characters", "jieba", "phash", "1", "2", "12", "123", "9", "0", "99", "log", "set", "tf",
    "norm.none", "norm.nfkc", "norm.casefold+marks", "norm.lower", "fnv1", "fnv1a", "fnv1utf16", "md5",
    "md5low", "xxh3", "jenkins", "cyclic", "tie1", "tie0", "class.title.3", "class.a.0", "class..1",
    "class.a.1.b.2", "min.2", "min.2.exact", "min.0", "min.99999999999999999999", "word.1", "word.4",
    "stop.00000000", "idf.00000000",
]
# fmt: on


def _try_recipe(random: Random) -> bool:
    ids = [
        *KNOWN_RECIPES,
        DEFAULT_RECIPE.id,
        "phash",
        "characters3-set-1",
        "words1-tf-class.a.2-min.2.exact-word.1-1",
    ]
    if random.random() < 0.5:
        name = "".join(
            [random.choice(("words", "characters", "words")), random.choice(("1", "12", "3", "21", "")), "-"]
        )
        name += "-".join(
            [*random.choices(_PARTS, k=random.choice((1, 2, 3, 5))), random.choice(("1", "1", "2", ""))]
        )
    else:
        name = mutate(random, random.choice(ids).encode(), [each.encode() for each in ids]).decode(
            "utf-8", "surrogateescape"
        )
    try:
        recipe = Recipe.from_id(name)
    except Exception as error:
        check_raised(error, f"Recipe.from_id({name!r})")
        return False
    assert Recipe.from_id(recipe.id) == recipe, name
    _check_recipe(recipe)
    return True


def _check_recipe(recipe: Recipe) -> None:
    if recipe.of_pictures:
        return
    texts = ["", "a few words of a text, and some more: é 語 😀", "\ud800\0 lone"]
    try:
        many = simhash_many(texts, recipe)
    except (ModuleNotFoundError, UsageError):
        return
    for text, each in zip(texts, many, strict=True):
        one = simhash(text, recipe)
        assert (one is None) == (each is np.ma.masked), (recipe.id, text)
        assert one is None or one == int(each), (recipe.id, text)
        assert one is None or 0 <= one < 1 << 64


def _make_recipe(random: Random) -> Recipe:
    return Recipe(
        tokens=random.choice(("words", "characters", Pattern("[a-z]+"), Pattern(r"\w", True))),
        shingles=random.choice(((1,), (1, 2), (3,), (2, 5))),
        weight=random.choice(("set", "log", "tf")),
        normalise=random.choice((("nfkc", "casefold", "marks"), (), ("lower",))),
        hash=random.choice(("splitmix", "fnv1a", "md5", "jenkins")),
        stop_words=frozenset(random.choice(((), ("a", "the"), ("é", "\ud800")))),
        class_weights=random.choice(((), (("body", 1), ("title", 3)))),
        min_features=random.choice((1, 3)),
    )


def _try_recipe_file(folder: Path, random: Random) -> bool:
    path = folder / "recipe.json"
    write_recipe(_make_recipe(random), path)
    data = path.read_bytes()
    if random.random() < 0.4:
        found = json.loads(data)
        for _ in range(random.choice((1, 2))):
            name = random.choice(
                [*found, "shingles", "tokens", "weight", "stop_words", "class_weights", "idf", "word", "short"]
            )
            found[name] = random.choice(_JSON)
        if random.random() < 0.8:
            found.pop("id", None)
        data = json.dumps(found).encode()
    else:
        if random.random() < 0.7:
            data = re.sub(rb'"id": "[^"]*",?', b"", data)
        data = mutate(random, data, [data, b'"idf": "recipe.json",', b'"tokens": {"pattern": "(a*)*b"},'])
    path.write_bytes(data)
    try:
        recipe = read_recipe(path)
    except Exception as error:
        check_raised(error, f"read_recipe of {data!r}")
        check_line(str(error).removeprefix(str(path)))
        return False
    again = folder / "again.json"
    write_recipe(recipe, again)
    assert read_recipe(again) == recipe, data
    if recipe.tokens in ("words", "characters"):
        _check_recipe(recipe)
    return True


# fmt: off
_JSON: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 9, 10, 1e300, 1.0, math.nan, 10**30, "", "words", "jieba", "phash", "log",
    "\0"),
    *("recipe.json", "/dev/null", ".", "/proc/self/mem", "missing.npz", "\ud800", "x" * 1000),
    *([], [1], [1, 2], [2, 1], [1, 1], [True], [None], ["a"], ["lower"], ["lower", "casefold"], [[1]], [1.0]),
    *({}, {"a": 1}, {"a": 0}, {"a": None}, {"A": 1}, {"pattern": "["}, {"pattern": "a", "characters": 1}),
    *({"pattern": ""}, {"pattern": "(a)(b)"}, {"pattern": "x", "more": 1}, {"pattern": "(?P<n>a)"}),
]
# fmt: on


# Text forms

_SPELLED = [
    *(
        "0",
        "1",
        "-1",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775808",
        "-9223372036854775809",
    ),
    *("0xffffffffffffffff", "0x0", "ffffffffffffffff", "1e3", "1_000", "٣", "１", "0b1", " 1", "1 ", "+1", "--1"),
]


def _try_spelled(random: Random) -> bool:
    text = mutate(random, random.choice(_SPELLED).encode(), [each.encode() for each in _SPELLED]).decode(
        "utf-8", "surrogateescape"
    )
    try:
        found = parse_fingerprint(text)
    except UsageError as error:
        check_line(str(error))
        found = None
    expected = None
    if re.fullmatch(r"-?[0-9]{1,20}|0[xX][0-9a-fA-F]{16}", text):
        number = int(text, 16 if text[1:2] in "xX" and text[1:2] else 10)
        expected = number % 2**64 if -(2**63) <= number < 2**64 else None
    assert found == expected, f"{text!r}: {found}, not {expected}"
    _try_numbers(text)
    return found is not None


def _try_numbers(text: str) -> None:
    for parse in (number_between(0, 64), number_between(1, 10**9), read_size):
        try:
            number = parse(text)
        except (typer.BadParameter, UsageError):
            continue
        assert number >= 0
    try:
        scope = parse_scope([text, "a=b"])
    except UsageError:
        return
    assert scope is not None


def _try_fingerprint_files(folder: Path, random: Random) -> bool:
    """Fingerprints in a file, as `simsql find-pairs` reads them."""
    numbers = [
        random.choice((0, 1, 3, 2**63, 2**64 - 1, random.getrandbits(64)))
        for _ in range(random.choice((0, 1, 3, 9)))
    ]
    end = random.choice(("\n", "\r\n", "\n\n", "\r"))
    forms = [str, lambda n: f"0x{n:016x}", lambda n: str(n - 2**64 if n >= 2**63 else n), lambda n: f" {n} "]
    data = "".join(random.choice(forms if random.random() < 0.5 else forms[:1])(n) + end for n in numbers).encode()
    data = mutate(random, data, [each.encode() for each in _SPELLED])
    path = folder / "fingerprints"
    path.write_bytes(data)
    expected: list[int] | None = []
    for line in data.splitlines():
        text = line.strip().decode("utf-8", "backslashreplace")
        if not text:
            continue
        try:
            expected.append(parse_fingerprint(text))
        except UsageError:
            expected = None
            break
    found = run("find-pairs", "--input", path, "--distance", 3)
    if expected is None:
        assert found.code in (1, 2), (data, found)
        assert found.err.startswith("simsql: error: "), found.err
        assert found.err.count("\n") == 1, found.err
        return False
    assert found.code == 0, (data, found.err)
    pairs = sorted(
        {(min(a, b), max(a, b)) for a in expected for b in expected if a != b and (a ^ b).bit_count() <= 3}
    )
    assert sorted(map(tuple, map(json.loads, found.lines))) == pairs, data
    return True


_URLS = [
    "postgresql://user:secret@127.0.0.1:1/name", "postgresql+psycopg://u@/name?host=/nowhere&port=1",
    "postgres://:1/",
    "postgresql+asyncpg://u@127.0.0.1:1/name?ssl=true&timeout=1.5",
    "postgresql://127.0.0.1:1,127.0.0.1:2/x?target_session_attrs=any",
    "postgresql+pg8000://u@127.0.0.1:1/x?unix_sock=/nowhere/.s.PGSQL.5432",
    "postgresql://[::1]:1/name?sslmode=disable",
    "sqlite://", "mysql+pymysql://a/b", "postgresql://u@127.0.0.1:1/x?prepare_threshold=None&options=-c%20a=b",
]  # fmt: skip


def _try_url(random: Random) -> bool:
    text = mutate(random, random.choice(_URLS).encode(), [each.encode() for each in _URLS]).decode(
        "utf-8", "surrogateescape"
    )
    try:
        open_engine(text).dispose()
    except Exception as error:
        check_raised(error, f"open_engine({text!r})")
        return False
    return True


# Arguments of Python


# fmt: off
def _values() -> list[Callable[[], Any]]:
    numbers = [None, True, -1, 0, 1, 3, 12, 64, 65, 2**31, 2**63, 2**64 - 1, 2**64, 2**200, -(2**63), 1.5, 3.0,
    math.nan, math.inf]
    texts = ["", "a", "some words", "\ud800", "\0", "ffffffffffffffff", "1", "x" * 10_000, b"a", b"\xff" * 8,
    bytearray(8)]
    lists: list[Any] = [
        *([], [None], [1, 2, 3], [1, None, 2**64 - 1], ["a", "b"], ["a", None], [1.5], [[1, 2], [3]], [True],
        [2**64], [-1]),
        *((), (1,), ("a", 1), [("a", 1)], [("a", "title")], [("a", 0)], {"a": 1}, {"a": -1}, {}, {1, 2},
        frozenset("ab"), {"a": None}),
        *([object()], [b"a"], [[]], [["a"]], range(3), "ab", [1] * 300, ["a b c"] * 300),
    ]
    arrays: list[Any] = [
        *(np.array([1, 2, 3], np.uint64), np.array([], np.uint64), np.array([1, -1]), np.array([1.5]),
        np.array([[1, 2]], np.uint64)),
        *(np.array(["a"]), np.array([None, 1], object), np.ma.array([1, 2], mask=[True, False], dtype=np.uint64),
        np.array(5)),
        *(np.uint64(3), np.float64(2), np.bool_(True), np.zeros(64, bool), np.zeros((2, 64), bool), np.array([1,
        2], "datetime64[s]")),
        *(np.array([1, 2], ">u8"), np.array([1, 2, 3, 4], np.uint64)[::2], np.ma.masked, np.array([2**63],
        np.uint64)),
        *(arrow.array([1, 2]), arrow.array(["a", None]), arrow.chunked_array([["a"], ["b"]]),
        arrow.table({"a": [1]}), arrow.array([None])),
        *(arrow.scalar(1), arrow.array([1.5]), arrow.array([[1]])),
    ]
    others: list[Any] = [
        *(object(), int, len, DEFAULT_RECIPE, KNOWN_RECIPES["fnv1a-words"], Design(), Path("x"), Decimal(3),
        datetime.now(UTC), 3j, ...),
        *(Recipe.from_id("phash"), Pattern("[a-z]+"), NotImplemented, Random(1)),
    ]
    made = [partial(lambda each: each, each) for each in [*numbers, *texts, *lists, *arrays, *others]]
    made.append(lambda: (n for n in range(3)))
    made.append(lambda: iter(["a", "b"]))
    return made
# fmt: on


_VALUES = _values()
_LEFT_OUT = {"load_rows", "read_recipe", "write_recipe", "uninstall_schema", "install_schema", "open_engine"}


def find_functions() -> list[tuple[str, Callable[..., Any]]]:
    """Everything public that can be called, by name."""
    packages = (simsql, fingerprint_package, hamming_package, database_package)
    found = {name: getattr(package, name) for package in packages for name in package.__all__}
    return sorted(
        (name, each)
        for name, each in found.items()
        if callable(each)
        and name not in _LEFT_OUT
        and not (isinstance(each, type) and issubclass(each, Exception | Recipe | tuple))
    )


_FUNCTIONS = find_functions()
_LIKELY: dict[str, list[Any]] = {
    "distance": [0, 3, 7, 64],
    "recipe": [DEFAULT_RECIPE, Recipe(shingles=(1,))],
    "workers": [None, 1],
    "fingerprints": [[1, 2, 3, 7], np.array([1, 2, 2**64 - 1], np.uint64)],
    "texts": [["a b c", "a b d", ""]],
    "rows": [0, 10, 10**6],
    "width": [64, 16],
    "blocks": [None, 4, 6],
}


def _argument(random: Random, name: str) -> Any:
    if name in _LIKELY and random.random() < 0.6:
        return random.choice(_LIKELY[name])
    value = random.choice(_VALUES)()
    if name == "workers" and not isinstance(value, bool) and isinstance(value, int) and value > 2:
        return 2
    return value


def _try_function(random: Random) -> bool:
    name, function = random.choice(_FUNCTIONS)
    given = {
        each.name: _argument(random, each.name)
        for each in inspect.signature(function).parameters.values()
        if each.default is inspect.Parameter.empty or random.random() < 0.4
    }
    given.pop("report", None)
    what = f"{name}({', '.join(f'{key}={value!r:.80}' for key, value in given.items())})"
    try:
        found = function(**given)
        if isinstance(found, GeneratorType):
            found = list(islice(found, 1000))
    except Exception as error:
        check_raised(error, what)
        return False
    if name == "find_pairs" and not isinstance(found, list) and "sketches" not in given:
        _check_pairs(given, found, what)
    return True


def _check_pairs(given: dict[str, Any], found: Any, what: str) -> None:
    fingerprints = given["fingerprints"]
    if not isinstance(fingerprints, list) or not all(type(each) is int for each in fingerprints):
        return
    values = sorted({each % 2**64 for each in fingerprints})
    distance = given.get("distance", 3)
    expected = [[a, b] for a in values for b in values if a < b and (a ^ b).bit_count() <= distance]
    assert sorted(found.tolist()) == expected, what
    assert sorted(find_pairs(values, distance).tolist()) == expected, what


def _plain(attempt: Callable[[Random], bool]) -> Any:
    @contextmanager
    def prepare(folder: Path) -> Iterator[Attempt]:
        yield attempt

    return prepare


VALUES = [
    Target("recipes", _plain(_try_recipe), 0.7),
    Target("recipe files", in_folder(_try_recipe_file)),
    Target("text forms", _plain(_try_spelled), 0.5),
    Target("fingerprint files", in_folder(_try_fingerprint_files)),
    Target("URLs", _plain(_try_url), 0.5),
    Target("Python", _plain(_try_function), 2),
]
