"""Recipes in files: what is written is read again, people may write less, and what is wrong is named."""

import io
import json
import zipfile
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simsql.fingerprint import (
    DEFAULT_RECIPE,
    IdfTable,
    Pattern,
    Recipe,
    Tokenizer,
    read_recipe,
    simhash_features,
    write_recipe,
)

TABLE = IdfTable(np.array([3, 2**63], dtype=np.uint64), np.array([1, 7], dtype=np.int32), 9)
NAMES = st.text("abc_0", min_size=1, max_size=4)
STEPS = ("nfkc", "casefold", "marks")
BY_FIELD = {
    "tokens": st.sampled_from(
        ["words", "characters", Pattern("[a-z\u4e00]+"), Pattern(r'"\w+"', characters=True)]
    ),
    "shingles": st.sets(st.integers(1, 9), min_size=1).map(lambda lengths: tuple(sorted(lengths))),
    "weight": st.sampled_from(["set", "log", "tf"]),
    "normalise": st.sets(st.sampled_from(STEPS)).map(lambda steps: tuple(sorted(steps, key=STEPS.index))),
    "hash": st.sampled_from(["splitmix", "fnv1a", "md5"]),
    "cyclic": st.booleans(),
    "tie": st.sampled_from([0, 1]),
    "stop_words": st.frozensets(st.text()),
    "idf": st.sampled_from([None, TABLE, IdfTable(np.zeros(0, np.uint64), np.zeros(0, np.int32), 1)]),
    "class_weights": st.dictionaries(NAMES, st.integers(1, 1_000_000)).map(
        lambda found: tuple(sorted(found.items()))
    ),
    "min_features": st.integers(2, 10**6),
    "short": st.sampled_from(["none", "exact"]),
    "word": st.sampled_from([0, 1, 3]),
    "revision": st.sampled_from([1, 2]),
}


def written(folder, text):
    path = folder / "recipe.json"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_field_is_generated():
    assert {field.name for field in fields(Recipe)} == set(BY_FIELD)


@given(st.fixed_dictionaries(BY_FIELD))
def test_what_is_written_is_read(tmp_path_factory, arguments):
    path = tmp_path_factory.mktemp("recipe") / "recipe.json"
    recipe = Recipe(**arguments)
    write_recipe(recipe, path)
    found = read_recipe(path)
    assert (found, found.id) == (recipe, recipe.id)
    assert json.loads(path.read_text(encoding="utf-8"))["id"] == recipe.id
    assert sorted(file.name for file in path.parent.iterdir()) == ["recipe.json"] + ["recipe.npz"] * (
        recipe.idf is not None
    )


def test_a_person_writes_what_differs(tmp_path):
    assert read_recipe(written(tmp_path, "{}")) == DEFAULT_RECIPE
    table = tmp_path / "tables" / "news.npz"
    table.parent.mkdir()
    TABLE.write(table)
    recipe = read_recipe(
        written(
            tmp_path,
            '\ufeff{"tokens": {"pattern": "[a-z]+"}, "shingles": [3], "stop_words": ["the", "的", "the"],'
            ' "idf": "tables/news.npz", "class_weights": {"title": 3, "heading": 2}}',
        )
    )
    assert recipe == Recipe(
        tokens=Pattern("[a-z]+"),
        shingles=(3,),
        stop_words=frozenset({"the", "的"}),
        idf=TABLE,
        class_weights=(("heading", 2), ("title", 3)),
    )


def test_a_person_can_read_it(tmp_path):
    path = tmp_path / "a.recipe"
    recipe = Recipe(stop_words=frozenset({"的", "a\ud800"}), class_weights=(("title", 3),), idf=TABLE)
    write_recipe(recipe, path)
    assert path.read_text(encoding="utf-8").splitlines() == [
        "{",
        f'  "id": "{recipe.id}",',
        '  "stop_words": [',
        '    "a\\ud800",',
        '    "的"',
        "  ],",
        '  "idf": "a.npz",',
        '  "class_weights": {',
        '    "title": 3',
        "  }",
        "}",
    ]
    assert read_recipe(path) == recipe


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "a recipe must be a JSON object"),
        ("{", "a recipe must be a JSON object, but this is not JSON: Expecting property name"),
        ("some text", "this is not JSON: Expecting value"),
        ("[" * 100_000, "nested too deeply"),
        (
            '{"shingle": [3], "wait": 1}',
            "unknown field 'shingle', 'wait': the fields are tokens, shingles, weight",
        ),
        ('{"weight": "set", "weight": "tf"}', "the field 'weight' occurs twice"),
        ('{"weight": "count"}', "weight must be one of 'set', 'log', 'tf', not 'count'"),
        ('{"weight": ["set"]}', "weight must be one of"),
        ('{"tokens": {"expression": "a"}}', "unknown field 'expression': the fields are pattern, characters"),
        ('{"tokens": {"pattern": 5}}', "tokens with an expression must be written as"),
        ('{"tokens": {"pattern": "a*"}}', "matches the empty text"),
        ('{"tokens": {"pattern": "("}}', "is not a regular expression"),
        ('{"tokens": {"pattern": "a{99999999999}"}}', "is not a regular expression"),
        ('{"tie": 1.0}', "tie must be one of 0, 1, not 1.0"),
        ('{"shingles": 3}', "shingles must be a list of names or numbers, not 3"),
        ('{"stop_words": "the"}', "stop_words must be a list of names or numbers, not 'the'"),
        ('{"stop_words": [["the"]]}', "stop_words must be a list of names"),
        ('{"stop_words": [1]}', "stop_words must be a frozenset of str"),
        ('{"class_weights": [["title", 3]]}', "class_weights must be an object such as"),
        (
            '{"class_weights": {"title": 0}}',
            "the weight of the class 'title' must be between 1 and 1000000, not 0",
        ),
        ('{"cyclic": "yes"}', "cyclic must be one of False, True, not 'yes'"),
        ('{"idf": 5}', "idf must be the path of a table, not 5"),
        ('{"idf": "missing.npz"}', "No such file"),
        ('{"idf": "recipe.json"}', r"recipe\.json is not an idf table written by simsql"),
        ('{"id": "words12-log-1", "weight": "set"}', "'words12-log-1', but the fields define 'words12-set-1'"),
        ('{"id": "words12-log-0"}', "'words12-log-0', but the fields define 'words12-log-1'"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match=message) as raised:
        read_recipe(path)
    assert str(raised.value).startswith(f"{path}: ")


def test_what_is_no_text_and_what_is_not_there(tmp_path):
    path = tmp_path / "recipe.json"
    path.write_bytes(b'{"weight": "\xff"}')
    with pytest.raises(ValueError, match=r"recipe\.json: .* this is not JSON: 'utf-8' codec"):
        read_recipe(path)
    with pytest.raises(FileNotFoundError):
        read_recipe(tmp_path / "missing.json")
    with pytest.raises(ValueError, match="/dev/zero: a recipe has at most 64 MB"):
        read_recipe("/dev/zero")


@pytest.mark.parametrize("damage", [lambda data: data[:40], lambda data: data[:60] + b"????????" + data[68:]])
def test_a_damaged_table_is_named(tmp_path, damage):
    path = tmp_path / "recipe.json"
    write_recipe(replace(DEFAULT_RECIPE, idf=TABLE), path)
    table = tmp_path / "recipe.npz"
    table.write_bytes(damage(table.read_bytes()))
    with pytest.raises(ValueError, match=r"recipe\.npz is not an idf table written by simsql"):
        read_recipe(path)


def _of_members(path, **members):
    """Write an archive as numpy does, in which some members are others than those of a table."""
    table = {
        "hashes": np.array([3], dtype=np.uint64),
        "weights": np.array([1], dtype=np.int32),
        "other": 9,
        "features": "",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, value in (table | members).items():
            file = io.BytesIO()
            np.save(file, value)
            archive.writestr(f"{name}.npy", value if isinstance(value, bytes) else file.getvalue())


def _header(text):
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def _array_of(shape):
    return _header(b"{'descr': '<u8', 'fortran_order': False, 'shape': (%s,)}\n" % shape)


@pytest.mark.parametrize(
    "members",
    [
        {"hashes": b"no array"},
        {"hashes": _array_of(b"99999999999999999999999")},
        {"hashes": _array_of(b"100000000000000")},  # more than there is memory
        {"hashes": _header(b"{'descr'\n")},
        {"other": np.inf},
        {"other": 2.5},
        {"other": 0},
        {"other": 257},
        {"weights": np.array([257], dtype=np.int32)},
    ],
)
def test_an_archive_of_other_things_is_no_table(tmp_path, members):
    _of_members(tmp_path / "table.npz")
    assert IdfTable.read(tmp_path / "table.npz").other == 9
    _of_members(tmp_path / "table.npz", **members)
    with pytest.raises(ValueError, match=r"table\.npz is not an idf table written by simsql"):
        IdfTable.read(tmp_path / "table.npz")


@pytest.mark.parametrize(
    ("place", "bits"),
    [(6, 64), (8, 1), (8, 32), (10, 64)],
    ids=["a later version", "encrypted", "a patch", "compressed otherwise"],
)
def test_an_archive_that_python_cannot_unpack_is_no_table(tmp_path, place, bits):
    path = tmp_path / "table.npz"
    TABLE.write(path)
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + place] ^= bits  # of the first entry of the directory
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"table\.npz is not an idf table"):
        IdfTable.read(path)


def test_weights_are_so_small_that_no_sum_overflows():
    nothing = np.zeros(0, np.uint64), np.zeros(0, np.int32)
    with pytest.raises(ValueError, match="the weights of an idf table must be between 1 and 256"):
        IdfTable(*nothing, 2**62)
    heaviest = Recipe(weight="tf", idf=IdfTable(*nothing, 256))
    features = {"a": 2**51, "b": 2**51, "c": 2**51, "d": 2**50, "e": 2**50 - 1}
    assert simhash_features(features, heaviest) == simhash_features(features)


def test_tables_that_differ_have_ids_that_differ():
    """The digest is of hashes, weights and digits one after the other: digits may not pass for hashes."""
    digits = b"1" * 12
    with pytest.raises(ValueError, match="between 1 and 256"):
        IdfTable(np.frombuffer(digits[:8], "<u8"), np.frombuffer(digits[8:], "<i4"), 5)
    with pytest.raises(ValueError, match="between 1 and 256"):
        IdfTable(np.zeros(0, np.uint64), np.zeros(0, np.int32), int(digits + b"5"))


def test_an_array_is_no_table(tmp_path):
    path = written(tmp_path, '{"idf": "array.npy"}')
    np.save(tmp_path / "array.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"array\.npy is not an idf table"):
        read_recipe(path)


def test_a_function_cannot_be_written(tmp_path):
    recipe = Recipe(tokens=Tokenizer("mine", "1", str.split))
    with pytest.raises(ValueError, match=r"custom\.mine\.1\.12-log-1 is a function"):
        write_recipe(recipe, tmp_path / "recipe.json")
    with pytest.raises(ValueError, match=r"\.npz is the extension of idf tables"):
        write_recipe(DEFAULT_RECIPE, tmp_path / "recipe.npz")
    assert not list(tmp_path.iterdir())
