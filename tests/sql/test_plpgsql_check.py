"""plpgsql_check reads every function of simsql, also what no test runs: names, types, variables without use."""

import re
import subprocess
from pathlib import Path

import pytest
from servers import Program, find_programs

# What Citus has, so that what is only called there is read, too.
CITUS = """
SET allow_system_table_mods = on;
CREATE TABLE pg_catalog.pg_dist_partition (
    logicalrelid regclass, partmethod "char", partkey text, colocationid integer, repmodel "char");
CREATE TABLE pg_catalog.pg_dist_shard (
    logicalrelid regclass, shardid bigint, shardminvalue text, shardmaxvalue text);
CREATE TABLE pg_catalog.pg_dist_local_group (groupid integer);
CREATE FUNCTION pg_catalog.run_command_on_placements(regclass, text, parallel boolean DEFAULT true)
RETURNS TABLE (nodename text, nodeport integer, shardid bigint, success boolean, result text)
LANGUAGE sql BEGIN ATOMIC SELECT '', 0, 0::bigint, true, ''; END;
CREATE FUNCTION pg_catalog.run_command_on_workers(text)
RETURNS TABLE (nodename text, nodeport integer, success boolean, result text)
LANGUAGE sql BEGIN ATOMIC SELECT '', 0, true, ''; END;
CREATE FUNCTION pg_catalog.column_to_column_name(regclass, text) RETURNS text LANGUAGE sql RETURN '';
RESET allow_system_table_mods;
"""
# In each storage: one index of the whole table, and one with a scope.
INDEXES = """
CREATE TABLE article (tenant integer, lang text, fingerprint bigint, other bigint);
INSERT INTO article SELECT n % 3, 'en', n * 1000003, n FROM generate_series(1, 1000) AS n;
SELECT simsql.create_index('article', 'fingerprint', storage => '{storage}');
SELECT simsql.create_index('article', 'other', scope => '{{tenant,lang}}', storage => '{storage}');
"""
FINDINGS = """
SELECT p.oid::regprocedure::text, coalesce(f.lineno, 0), concat_ws(': ', f.message, f.detail)
  FROM pg_proc AS p
  LEFT JOIN LATERAL (SELECT * FROM pg_trigger WHERE tgfoid = p.oid LIMIT 1) AS t ON true
 CROSS JOIN LATERAL plpgsql_check_function_tb(
     p.oid, coalesce(t.tgrelid, 0), oldtable => t.tgoldtable, newtable => t.tgnewtable,
     fatal_errors => false, extra_warnings => true, performance_warnings => false) AS f
 WHERE p.pronamespace = 'simsql'::regnamespace
   AND p.prolang = (SELECT oid FROM pg_language WHERE lanname = 'plpgsql')
   AND (p.prorettype <> 'trigger'::regtype OR t.oid IS NOT NULL)
 ORDER BY 1, 2
"""
# What it cannot know.
WRONG = [
    # A record has the columns of a statement that does not exist before it runs.
    r'record "\w+" is not assigned yet|cached plan is not valid plan|dynamic SQL',
    # near and similar_candidates have a call for each index that there may be.
    r"function simsql\.(search|similar)_\d+\(bigint, integer(, jsonb){0,2}\) does not exist",
    # The scope of an index without one, and the type of the rows.
    r'^simsql\.similar_\d+.*unused parameter "\$3"',
    r'^simsql\.rows_\d+.*unused parameter "\$[34]"',
    # It works in a subtransaction.
    r"cannot (commit|roll back) while a subtransaction is active",
    # A LOOP without EXIT ends with RETURN or an error.
    r"control reached end of function without RETURN",
    # The call is what counts.
    r'never read variable "is_\w+"',
    # The operations of both storages have the same parameters.
    r"^simsql\._(tables|expression)_.*(unused parameter|unmodified OUT variable)",
    # A literal: PostgreSQL converts it.
    r'target type is different type than source type: cast "text" value',
]


def has_check(program: Program) -> bool:
    output = subprocess.check_output([program.bin_folder / "pg_config", "--sharedir"], text=True)
    return Path(output.strip(), "extension", "plpgsql_check.control").exists()


@pytest.fixture(scope="module")
def server(_running):
    for program in find_programs():
        if has_check(program):
            return _running(program)
    pytest.skip("no PostgreSQL here has plpgsql_check: Debian has postgresql-15-plpgsql-check")


def faults(connection) -> list[str]:
    """What is wrong with which function, without what plpgsql_check cannot know."""
    found = connection.execute(FINDINGS).fetchall()
    records = {(name, record) for name, _, text in found for record in re.findall(r'record "(\w+)" is not', text)}
    return [
        f"{name}, line {line}: {text}"
        for name, line, text in found
        if not re.search("|".join(WRONG), f"{name} {text}")
        and (name, *re.findall(r'never read variable "(\w+)"', text)) not in records
    ]


@pytest.mark.parametrize("kind", ["tables", "expression"])
def test_no_function_has_a_fault(connection, kind):
    connection.execute("CREATE EXTENSION plpgsql_check")
    connection.execute(CITUS)
    connection.execute(INDEXES.format(storage=kind))
    generated = {name for (name,) in connection.execute("SELECT proname FROM pg_proc WHERE proname ~ '_[0-9]+$'")}
    assert {"search_1", "search_2"} <= generated
    assert ("add_on_insert_2" in generated) == (kind == "tables")
    assert faults(connection) == []


def test_a_fault_is_found(connection):
    connection.execute("CREATE EXTENSION plpgsql_check")
    connection.execute(CITUS)
    connection.execute(
        "CREATE FUNCTION simsql._a(value integer, rest integer) RETURNS integer LANGUAGE plpgsql AS $$"
        " DECLARE unused integer; BEGIN"
        " IF value = 1 THEN RETURN simsql._b(value); END IF;"
        " RETURN (SELECT r.colum FROM simsql.registry AS r);"
        " END $$"
    )
    found = "\n".join(faults(connection))
    for part in ('variable "unused"', 'parameter "rest"', "simsql._b(integer) does not", "r.colum does not"):
        assert part in found
    assert len(found.splitlines()) == 4
