"""Statistics of stored fingerprints, against brute force, and predictions for the shared texts."""

import json
import lzma
import os
from pathlib import Path

import numpy as np
import pytest
from articles import create_articles, create_index, create_table
from skew import mean_candidates, skewed
from sqlalchemy.exc import ProgrammingError

from simsql import Design, simhash_many
from simsql.database.statistics import read_statistics, sample_fingerprints

SHARED = Path(os.environ.get("SIMSQL_SHARED", Path(__file__).parents[3] / "shared")) / "data"
CORPORA = {"civil_codes": "text", "cn_laws": "text", "hadith_darimi": "plain"}
FINGERPRINTS = skewed(3_000, seed=1)


def test_statistics_of_a_table(connection, database):
    create_articles(connection, [*FINGERPRINTS, None, FINGERPRINTS[0]])
    with database.connect() as session:
        found = read_statistics(session, "article")
    assert (found.rows, found.distinct, found.design) == (len(FINGERPRINTS) + 1, len(FINGERPRINTS), Design(4))
    values = np.array(FINGERPRINTS).view(np.uint64)
    for bit, mean in zip(range(63, -1, -1), found.bit_means, strict=True):
        assert mean == pytest.approx(sum(int(value) >> bit & 1 for value in values) / len(values))
    assert [hot.permutation for hot in found.prefixes] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    for hot in found.prefixes:
        blocks = (values >> np.uint64(48 - 16 * hot.permutation)) & np.uint64(0xFFFF)
        assert hot.keys == np.count_nonzero(blocks == hot.prefix)
        assert hot.times == pytest.approx(hot.keys / (len(values) / 2**16))
        assert hot.keys <= np.bincount(blocks.astype(np.int64)).max()
    assert [expected.distance for expected in found.candidates] == [3, 7, 10]
    for distance, uniform, sampled, measured in found.candidates:
        assert uniform == Design(4).candidates(distance, len(values))
        true = mean_candidates(FINGERPRINTS, (4, 1, 0), distance)
        assert true / 1.5 < sampled < true * 1.5
        assert true / 1.5 < measured < true * 1.5


def test_statistics_of_an_empty_table_and_of_a_design_with_too_many_ranges(connection, database):
    create_articles(connection)
    create_table_of_one = "CREATE TABLE one (fingerprint bigint); INSERT INTO one VALUES (5)"
    connection.execute(create_table_of_one)
    create_index(connection, "one", design=(2, 1, 0))
    with database.connect() as session:
        empty = read_statistics(session, "article")
        assert (empty.rows, empty.distinct, empty.prefixes) == (0, 0, ())
        assert [tuple(expected) for expected in empty.candidates] == [(d, 0.0, None, None) for d in (3, 7, 10)]
        one = read_statistics(session, "one", "fingerprint")
        assert [expected.measured for expected in one.candidates] == [0.0, 0.0, None]


def test_statistics_of_a_scope(connection, database):
    connection.execute("CREATE TABLE article (tenant integer, fingerprint bigint)")
    connection.execute("INSERT INTO article SELECT f & 1, f FROM unnest(%s::bigint[]) AS f", [FINGERPRINTS])
    connection.execute(
        "SELECT simsql.create_index('article', 'fingerprint', blocks => 4, scope => ARRAY['tenant'])"
    )
    odd = [fingerprint for fingerprint in FINGERPRINTS if fingerprint & 1]
    with database.connect() as session:
        found = read_statistics(session, "article", scope={"tenant": 1})
    assert found.distinct == len(odd)
    true = mean_candidates(odd, (4, 1, 0), 10)
    assert true / 1.5 < found.candidates[2].measured < true * 1.5


def test_a_sample_of_a_table_with_and_without_an_index(connection, database):
    create_table(connection, [*FINGERPRINTS, None])
    connection.execute("CREATE TABLE same AS SELECT 5::bigint AS fingerprint")
    with database.connect() as session:
        rows, sample = sample_fingerprints(session, "article", "fingerprint")
        assert rows == len(FINGERPRINTS)
        for design in ((4, 1, 0), (3, 1, 0)):
            for distance in (7, 10):
                true = mean_candidates(FINGERPRINTS, design, distance)
                assert true / 1.5 < Design(*design).candidates(distance, rows, sample) < true * 1.5
        assert sample_fingerprints(session, "same", "fingerprint") == (1, None)
        session.rollback()
        with pytest.raises(ProgrammingError, match="has no simhash index"):
            sample_fingerprints(session, "article")
    create_index(connection)
    with database.connect() as session:
        assert sample_fingerprints(session, "article")[0] == len(FINGERPRINTS)


@pytest.mark.parametrize("corpus", CORPORA)
def test_predictions_for_real_texts(connection, database, corpus):
    path = SHARED / f"{corpus}.jsonl.xz"
    if not path.is_file():
        pytest.skip(f"needs the texts in {path}: set SIMSQL_SHARED to the folder that holds data/")
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        fingerprints = simhash_many([json.loads(line)[CORPORA[corpus]] for line in lines]).compressed()
    create_articles(connection, fingerprints.view(np.int64).tolist())
    with database.connect() as session:
        found = read_statistics(session, "article")
        rows, sample = sample_fingerprints(session, "article")
    assert rows == len(fingerprints)
    for distance, uniform, sampled, measured in found.candidates:
        planned = Design(4).candidates(distance, found.distinct, sample)
        assert uniform * 3 < measured
        assert measured / 1.5 < sampled < measured * 1.5
        assert measured / 1.5 < planned < measured * 1.5
