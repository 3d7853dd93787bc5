"""One mistake is one error, whichever function it is made in."""

import pytest
from sqlalchemy import Column, MetaData, Table, create_engine
from sqlalchemy.orm import Session

from simsql import SimsqlError, UsageError, find_clusters, find_pairs, plan
from simsql.database import (
    IndexSpec,
    SearchIndex,
    change_storage,
    create_index,
    drop_index,
    install_schema,
    load_rows,
    read_status,
    set_default_index,
    uninstall_schema,
)
from simsql.hamming import default_design, find_matches
from simsql.sqlalchemy import Fingerprint, SimhashIndex, claim, clusters, near, near_many, pairs

COLUMN = Table("article", MetaData(), Column("fingerprint", Fingerprint())).c.fingerprint


@pytest.mark.parametrize("distance", [-1, 65])
@pytest.mark.parametrize(
    "function",
    [
        lambda distance: find_pairs([1, 2], distance),
        lambda distance: find_pairs([1, 2], distance, batches=True),
        lambda distance: find_clusters([1, 2], distance),
        lambda distance: list(find_matches([1], [[2]], distance)),
        lambda distance: plan(1000, distance),
        lambda distance: default_design(1000, distance),
        lambda distance: IndexSpec("fingerprint", distance),
        lambda distance: SimhashIndex("fingerprint", distance=distance),
        lambda distance: near(COLUMN, 5, distance),
        lambda distance: COLUMN.near(5, distance),
        lambda distance: claim(COLUMN, 5, distance),
        lambda distance: near_many(COLUMN, [5], distance),
        lambda distance: pairs(COLUMN, distance),
        lambda distance: clusters(COLUMN, distance),
    ],
)
def test_a_distance_out_of_range(function, distance):
    """For those of an index, see test_search_index.py; for the command line, test_options.py."""
    with pytest.raises(UsageError, match=f"^distance must be between 0 and 64, not {distance}$"):
        function(distance)


@pytest.mark.parametrize(
    "function",
    [
        lambda bind: SearchIndex(bind, "article"),
        lambda bind: create_index(bind, "article", "fingerprint"),
        lambda bind: drop_index(bind, "article"),
        lambda bind: set_default_index(bind, "article", "fingerprint"),
        lambda bind: change_storage(bind, "article", "tables"),
        lambda bind: load_rows(bind, "article", ["id"], []),
        install_schema,
        uninstall_schema,
        read_status,
    ],
)
def test_what_is_neither_an_engine_nor_a_connection(function):
    for bind, advice in (("postgresql://", "open_engine"), (Session(), r"session\.connection\(\)"), (5, "int$")):
        with pytest.raises(UsageError, match=f"^pass an Engine or a Connection .*{advice}"):
            function(bind)


def test_a_load_into_an_engine():
    with pytest.raises(UsageError, match=r"^load_rows works .*: pass a Connection, as from engine\.begin\(\)"):
        load_rows(create_engine("postgresql+psycopg://"), "article", ["id"], [])


def test_a_usage_error_is_caught_as_a_value_error():
    for kind in (ValueError, SimsqlError):
        with pytest.raises(kind):
            plan(-1, 3)
