"""Samples of stored fingerprints predict what searches read, for the shared texts, too."""

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
from simsql.database.samples import sample_fingerprints

SHARED = Path(os.environ.get("SIMSQL_SHARED", Path(__file__).parents[3] / "shared")) / "data"
CORPORA = {"civil_codes": "text", "cn_laws": "text", "hadith_darimi": "plain"}
FINGERPRINTS = skewed(3_000, seed=1)


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
        rows, sample = sample_fingerprints(session, "article")
    assert rows == len(fingerprints)
    distinct = np.unique(fingerprints).view(np.int64)
    (shares,) = connection.execute("SELECT candidate_shares FROM simsql.registry").fetchone()
    for distance in (3, 7, 10):
        true = mean_candidates(distinct.tolist(), (4, 1, 0), distance)
        assert 3 * Design(4).candidates(distance, len(distinct)) < true
        assert true / 1.5 < shares[distance] * len(distinct) < true * 1.5
        assert true / 1.5 < Design(4).candidates(distance, len(distinct), sample) < true * 1.5
