"""Tables of articles that are partitioned or managed by Citus: made, filled, indexed and searched."""

import articles
import psycopg
from oracle import clustered
from upkeep import problems

FINGERPRINTS = clustered(300, seed=15)
QUERIES = [0, -1, FINGERPRINTS[17], FINGERPRINTS[150]]
# Columns by which the kinds of tables below are partitioned.
COLUMNS = "id bigint, tenant integer NOT NULL, day date NOT NULL, fingerprint bigint"
KINDS = {
    "range": """
        CREATE TABLE article (columns) PARTITION BY RANGE (day);
        CREATE TABLE part_1 PARTITION OF article FOR VALUES FROM ('2025-01-01') TO ('2025-02-01');
        CREATE TABLE part_2 PARTITION OF article FOR VALUES FROM ('2025-02-01') TO ('2025-03-01');
        CREATE TABLE part_3 PARTITION OF article DEFAULT""",
    "list": """
        CREATE TABLE article (columns) PARTITION BY LIST (tenant);
        CREATE TABLE part_1 PARTITION OF article FOR VALUES IN (1);
        CREATE TABLE part_2 PARTITION OF article FOR VALUES IN (2, 3);
        CREATE UNLOGGED TABLE part_3 PARTITION OF article DEFAULT""",
    "hash": """
        CREATE TABLE article (columns) PARTITION BY HASH (id);
        CREATE TABLE part_1 PARTITION OF article FOR VALUES WITH (MODULUS 3, REMAINDER 0);
        CREATE TABLE part_2 PARTITION OF article FOR VALUES WITH (MODULUS 3, REMAINDER 1);
        CREATE TABLE part_3 PARTITION OF article FOR VALUES WITH (MODULUS 3, REMAINDER 2)""",
    "partitions of partitions": """
        CREATE TABLE article (columns) PARTITION BY LIST (tenant);
        CREATE TABLE part_1 PARTITION OF article FOR VALUES IN (1) PARTITION BY RANGE (day);
        CREATE TABLE part_1_1 PARTITION OF part_1 FOR VALUES FROM ('2025-01-01') TO ('2025-02-01');
        CREATE TABLE part_1_2 PARTITION OF part_1 DEFAULT;
        CREATE TABLE part_2 PARTITION OF article DEFAULT""",
}
# How Citus manages a table, and the partitions of the one that is partitioned, too.
DISTRIBUTE = {
    "distributed by id": "SELECT create_distributed_table('article', 'id')",
    "distributed by tenant": "SELECT create_distributed_table('article', 'tenant')",
    "in a single shard": "SELECT create_distributed_table('article', NULL)",
    "reference": "SELECT create_reference_table('article')",
    "local": "SELECT citus_add_local_table_to_metadata('article')",
    "partitioned": "SELECT create_distributed_table('article', 'id')",
}
PARTITIONS = """
    CREATE TABLE part_1 PARTITION OF article FOR VALUES FROM ('2025-01-01') TO ('2025-02-01');
    CREATE TABLE part_2 PARTITION OF article FOR VALUES FROM ('2025-02-01') TO ('2026-01-01')"""


def create_partitioned(connection: psycopg.Connection, kind: str) -> None:
    connection.execute(KINDS[kind].replace("columns", COLUMNS, 1))


def create_months(connection: psycopg.Connection) -> None:
    """Without a default partition, partitions are attached and detached beside searches."""
    months = KINDS["range"].replace("DEFAULT", "FOR VALUES FROM ('2025-03-01') TO ('2025-04-01')")
    connection.execute(months.replace("columns", COLUMNS, 1))


def create_distributed(connection: psycopg.Connection, kind: str = "distributed by id") -> None:
    if kind == "partitioned":
        connection.execute(f"CREATE TABLE article ({COLUMNS}) PARTITION BY RANGE (day); {PARTITIONS}")
    else:
        connection.execute(f"CREATE TABLE article ({COLUMNS})")
    connection.execute(DISTRIBUTE[kind])


def insert(connection: psycopg.Connection, fingerprints: list[int | None], table: str = "article") -> None:
    """Rows of the tenants 1 to 4 in the first three months of a year."""
    connection.execute(
        f"INSERT INTO {table} SELECT n, 1 + n %% 4, date '2025-01-01' + (n * 7 %% 90)::integer, f"
        " FROM unnest(%s::bigint[]) WITH ORDINALITY AS u (f, n)",
        [fingerprints],
    )


def create_index(connection: psycopg.Connection, more: str = "") -> None:
    connection.execute(f"SELECT simsql.create_index('article', 'fingerprint', blocks => 4{more})")


def searches_are_exact(connection: psycopg.Connection) -> None:
    articles.searches_are_exact(connection, queries=QUERIES)
    assert problems(connection) == set()
