"""The layout in SQL and the layout in Python are one: keys made by either are found by the other."""

import math
import random
from collections.abc import Iterator

import psycopg
import pytest
from articles import DESIGNS
from oracle import EXTREMES, to_bigint
from servers import TEMPLATE, Server

from simsql.hamming import Design
from simsql.hamming.blocks import flip_masks

pytestmark = pytest.mark.parametrize("design", [Design(*design) for design in DESIGNS], ids=str)
FINGERPRINTS = [number % 2**64 for number in EXTREMES] + [random.Random(1).getrandbits(64) for _ in range(40)]
DISTANCES = range(65)


def layout(design: Design) -> list[int]:
    return [design.blocks, design.lead, design.inner_blocks]


@pytest.fixture
def connection(server: Server) -> Iterator[psycopg.Connection]:
    """Nothing is written here, so the template itself will do."""
    with server.connect(TEMPLATE) as connection:
        yield connection


def test_permutations_have_the_same_numbers_lead_bits_and_prefixes(connection, design):
    rows = connection.execute("SELECT * FROM simsql._permutations(%s, %s, %s)", layout(design))
    expected = [(p.number, to_bigint(p.lead_mask), p.prefix_bits) for p in design.permutations]
    assert sorted(rows) == expected
    (count,) = connection.execute("SELECT simsql._table_count(%s, %s, %s)", layout(design)).fetchone()
    assert count == design.tables


def test_keys_are_the_same_and_lead_back_to_the_fingerprint(connection, design):
    for permutation in design.permutations:
        permute, unpermute = connection.execute(
            "SELECT simsql._permute('f', %(lead)s), simsql._permute('k', %(lead)s, back => true)",
            {"lead": to_bigint(permutation.lead_mask)},
        ).fetchone()
        rows = connection.execute(
            f"SELECT k, {unpermute} FROM (SELECT {permute} AS k FROM unnest(%s::bigint[]) AS f) AS keys",
            [[to_bigint(fingerprint) for fingerprint in FINGERPRINTS]],
        )
        expected = [
            (to_bigint(permutation.key(fingerprint)), to_bigint(fingerprint)) for fingerprint in FINGERPRINTS
        ]
        assert rows.fetchall() == expected


def test_each_table_has_the_same_radius_at_every_distance(connection, design):
    rows = connection.execute(
        "SELECT p.number, d, least(simsql._radius(%(m)s, %(c)s, %(i)s, p.number, d), p.prefix)"
        " FROM simsql._permutations(%(m)s, %(c)s, %(i)s) AS p CROSS JOIN generate_series(0, 64) AS d",
        dict(zip("mci", layout(design), strict=True)),
    )
    found = {(number, distance): radius for number, distance, radius in rows}
    assert found == {
        (number, distance): radius
        for distance in DISTANCES
        for number, radius in enumerate(design.radii(distance))
    }


def test_a_search_computes_the_radius_without_a_call(connection, design):
    plan = connection.execute(
        "EXPLAIN (VERBOSE, COSTS OFF) SELECT simsql._radius(%s, %s, %s, 1, d) FROM generate_series(0, 64) AS d",
        layout(design),
    ).fetchall()
    assert "_radius" not in str(plan)


def test_the_cost_counts_the_same_probes_and_candidates(connection, design):
    rows = connection.execute(
        "SELECT * FROM simsql._searches(%s, %s, %s, ARRAY(SELECT generate_series(0, 64)))", layout(design)
    ).fetchall()
    assert sorted(distance for distance, _, _ in rows) == list(DISTANCES)
    for distance, probes, share in rows:
        assert probes == pytest.approx(design.probes(distance), rel=1e-12)
        assert share * 10**6 == pytest.approx(design.candidates(distance, 10**6), rel=1e-12)


def test_scans_start_to_pay_at_the_same_number_of_rows(connection, design):
    (scan_below,) = connection.execute("SELECT simsql._scan_below(%s, %s, %s)", layout(design)).fetchone()
    paying = [distance for distance in DISTANCES if design.scan_rows(distance) < 1e15]
    assert paying == list(range(len(scan_below)))
    for distance, found in zip(paying, scan_below, strict=True):
        # Both are floating point, rounded up in SQL.
        assert found == pytest.approx(math.ceil(design.scan_rows(distance)), abs=1, rel=1e-9)


def test_flips_are_the_same_bits_of_a_key_and_of_a_fingerprint(connection, design):
    for permutation in design.permutations[:3]:
        bits = permutation.prefix_bits
        for radius in (radius for radius in range(4) if math.comb(bits, radius) < 50_000):
            (ways,) = connection.execute("SELECT simsql._ways(%s, %s)", [bits, radius]).fetchone()
            for mask in (permutation.prefix_mask, permutation.lead_mask):
                (flips,) = connection.execute("SELECT simsql._flips(%s, %s)", [to_bigint(mask), radius]).fetchone()
                assert len(flips) == ways
                assert sorted(flips) == sorted(flip_masks(mask, radius).view("int64").tolist())
