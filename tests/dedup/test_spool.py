"""What is spooled comes back, and nothing stays in the folder."""

import errno
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simsql.documents.spool import TextSpool, TokenSpool, digest_tokens
from simsql.fingerprint import TokenLists

TOKENS = st.lists(st.lists(st.integers(0, 2**64 - 1), max_size=5), max_size=6)


def lists(documents):
    tokens = [token for document in documents for token in document]
    return TokenLists(np.array(tokens, dtype=np.uint64), np.array(list(map(len, documents)), dtype=np.int64))


@given(st.lists(TOKENS, max_size=4), st.data())
def test_tokens_of_documents_come_back_in_any_order(batches, data):
    documents = [document for batch in batches for document in batch]
    digests = [digest for batch in batches for digest in digest_tokens(lists(batch))]
    assert [[one == other for other in digests] for one in digests] == (
        [[one == other for other in documents] for one in documents]
    )
    with TokenSpool() as spool:
        starts = np.array([start for batch in batches for start in spool.add_tokens(lists(batch))], dtype=np.int64)
        positions = data.draw(st.lists(st.sampled_from(range(len(documents))), max_size=8)) if documents else []
        sizes = np.array([len(documents[position]) for position in positions], dtype=np.int64)
        expected = [token for position in positions for token in documents[position]]
        assert spool.read_at(starts[positions or slice(0)], sizes).tolist() == expected


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
        tokens.add_tokens(lists([[1, 2]]))
        assert texts.read(0) == "some text"
        # Not even if the process is killed now.
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_full_disk_names_the_folder(size, monkeypatch):
    folder = tempfile.gettempdir()
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda prefix: Path("/dev/full").open("w+b"))  # noqa: SIM115

    def fill():
        with TokenSpool() as spool:
            spool.add_tokens(lists([range(size)]))
            spool.read_at(np.array([0]), np.array([size]))

    with pytest.raises(OSError, match=folder) as raised:
        fill()
    assert raised.value.errno == errno.ENOSPC
