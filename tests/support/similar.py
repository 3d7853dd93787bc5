"""Queries for similar texts from given probabilities of flips, and what they must find by brute force."""

import json
from collections.abc import Collection

import numpy as np

from simsql.database.similar import SimilarQuery
from simsql.hamming import Design
from simsql.hamming.directed import direct

RECIPE = "words12-log-1"


def make_query(
    fingerprint: int, design: tuple[int, int, int], seed: int = 0, recall: float = 0.9, most: int = 200
) -> str:
    """A query around a bigint, whose bits flip with random probabilities, most of them rarely."""
    layout = Design(*design)
    probabilities = np.random.default_rng(seed).random(64) ** 4 / 2
    probes = direct(layout, probabilities, recall, most)
    return SimilarQuery(fingerprint % 2**64, RECIPE, layout, probes).json


def like_near(fingerprint: object, within: object, table: str = "'article'", column: str = "NULL") -> str:
    """The query, in SQL, that finds what near finds within 7 bits, and always what is within the exact distance.

    The cost is the distance. The arguments are SQL.
    """
    return f"""(
    SELECT jsonb_build_object(
           'simsql_query', 1, 'recipe', r.recipe, 'design', jsonb_build_array(r.blocks, r.lead, r.inner_blocks),
           'fingerprint', {fingerprint}, 'planes', '[-1, 0, 0, 0]'::jsonb, 'screen', 64, 'cost', {within}, 'flips',
           (SELECT jsonb_agg(ARRAY(
                   SELECT (f >> (64 - p.prefix)) & ~(-1::bigint << p.prefix)
                     FROM unnest(simsql._flips(-1::bigint << (64 - p.prefix), greatest(0, simsql._radius(
                            r.blocks, r.lead, r.inner_blocks, p.number, least(7, {within}))))) AS f)::text
                             ORDER BY p.number)
              FROM simsql._permutations(r.blocks, r.lead, r.inner_blocks) AS p))
      FROM simsql.registry AS r
     WHERE r.table_id = {table}::regclass AND simsql._is_meant(r.column_name, r.is_default, {column}) LIMIT 1)"""


def expected_candidates(
    fingerprints: Collection[int | None], query: str, *, probing: bool = True
) -> list[tuple[int, int, int]]:
    """(fingerprint, distance, cost), cheapest first: what a search finds that probes, or that scans."""
    wanted = json.loads(query)
    design = Design(*wanted["design"])
    flips = [{int(flip) for flip in values.strip("{}").split(",")} for values in wanted["flips"]]
    exact = max(distance for distance in range(65) if design.radius(distance) <= 0)
    found = []
    for fingerprint in set(fingerprints) - {None}:
        differing = (fingerprint ^ wanted["fingerprint"]) % 2**64
        cost = sum(
            (differing & plane % 2**64).bit_count() << place for place, plane in enumerate(wanted["planes"])
        )
        screened = (differing & (wanted["planes"][2] | wanted["planes"][3]) % 2**64).bit_count()
        distance = differing.bit_count()
        probed = any(
            table.key(differing) >> 64 - table.prefix_bits in values
            for table, values in zip(design.permutations, flips, strict=True)
        )
        is_match = screened <= max(wanted["screen"], exact) and (cost <= wanted["cost"] or distance <= exact)
        if is_match and (probed or not probing):
            found.append((fingerprint, distance, cost))
    return sorted(found, key=lambda match: (match[2], match[1], match[0]))
