"""docs/explanation/reliability.md: its rows name tests that exist, and each fault has a check that can fail."""

import pytest
from articles import create_articles
from oracle import clustered
from reliability import compare, read_kinds, read_page, sabotage

KINDS = read_kinds()


def test_the_page_has_a_row_for_each_kind_with_all_its_tests():
    """If not, add the missing rows, or let `make reliability` write them."""
    assert {row.kind: row.files for row in read_page()} == {name: kind.files for name, kind in KINDS.items()}


def test_each_row_was_tried_and_lost_nothing():
    assert [row for row in read_page() if row.tried < 1 or row.lost or row.wrong] == []


def test_each_kind_has_a_sabotage():
    assert [name for name, kind in KINDS.items() if not kind.sabotaged] == []


def test_a_comparison_notices_what_is_broken(connection, storage):
    committed = dict(enumerate(clustered(60, seed=1), 1))
    create_articles(connection, committed.values(), storage=storage)
    assert compare(connection, committed)[1:] == (0, 0)
    broken = []
    for name in sabotage(connection, committed):
        assert compare(connection, committed).lost > 0
        broken.append(name)
    assert broken == (["a row is gone", "keys are gone"] if storage == "tables" else ["a row is gone"])
    assert compare(connection, committed)[1:] == (0, 0)
    # A row and a match that nobody committed.
    assert compare(connection, {row: value for row, value in committed.items() if row > 1}).wrong > 0


@pytest.mark.parametrize("figures", [{"lost": 1}, {"wrong": 1}])
def test_a_loss_fails_the_test_that_counts_it(request, tally, figures):
    with pytest.raises(AssertionError, match="lost"):
        tally(tried=5, **figures)
    assert request.node.user_properties[-1][1][0] == 5
