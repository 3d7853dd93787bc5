"""What is spooled comes back, and nothing stays in the folder."""

import errno
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simsql.documents.spool import TextSpool, TokenSpool
from simsql.fingerprint import TokenLists

TOKENS = st.lists(st.lists(st.integers(0, 2**64 - 1), max_size=5), max_size=6)


def lists(documents):
    tokens = [token for document in documents for token in document]
    return TokenLists(np.array(tokens, dtype=np.uint64), np.array(list(map(len, documents)), dtype=np.int64))


@given(st.lists(TOKENS, max_size=4), st.data())
def test_tokens_of_documents_come_back_in_any_order(batches, data):
    documents = [document for batch in batches for document in batch]
    with TokenSpool() as spool:
        for batch in batches:
            spool.append(lists(batch))
            assert spool.read(np.zeros(0, dtype=np.int64)).tolist() == []
        assert spool.counts.tolist() == list(map(len, documents))
        digests = spool.digests
        assert len(digests) == len(documents)
        for one, first in zip(digests, documents, strict=True):
            for other, second in zip(digests, documents, strict=True):
                assert (one == other) == (first == second)
        if documents:
            positions = data.draw(st.lists(st.integers(0, len(documents) - 1), max_size=8))
            expected = [token for position in positions for token in documents[position]]
            assert spool.read(np.array(positions, dtype=np.int64)).tolist() == expected


@given(st.lists(st.text(st.characters(codec=None)), max_size=5))
def test_texts_come_back_as_they_are(texts):
    with TextSpool() as spool:
        for number, text in enumerate(texts):
            spool.append(text)
            assert spool.read(number) == text
        assert [spool.read(number) for number in range(len(texts))] == texts


def test_nothing_stays_in_the_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with TextSpool() as texts, TokenSpool() as tokens:
        texts.append("some text")
        tokens.append(lists([[1, 2]]))
        assert texts.read(0) == "some text"
        # Not even if the process is killed now.
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_full_disk_names_the_folder(size, monkeypatch):
    folder = tempfile.gettempdir()
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda prefix: Path("/dev/full").open("w+b"))  # noqa: SIM115

    def fill():
        with TokenSpool() as spool:
            spool.append(lists([range(size)]))
            spool.read(np.array([0]))

    with pytest.raises(OSError, match=folder) as raised:
        fill()
    assert raised.value.errno == errno.ENOSPC
