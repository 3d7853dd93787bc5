"""Beside alembic_utils, whose autogenerate drops what it does not know, the objects of simsql stay."""

import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
# In a process of its own: from its import on, alembic_utils takes part in all comparisons of a process.
COMPARE = """
import json
import sys
from pathlib import Path

from alembic_project import Project, models
from sqlalchemy import create_engine

import simsql.alembic
from simsql.sqlalchemy import SimhashIndex

def mine(item, name, type_, reflected, compare_to):
    return name != "public.kept()"


project = Project(Path(sys.argv[1]), create_engine(sys.argv[2]))
project.metadata = models(SimhashIndex("fingerprint"))
project.migrate()
for statement in (
    "SELECT simsql.clear_on_change('article', 'fingerprint', ARRAY['body'])",
    "CREATE FUNCTION kept() RETURNS int LANGUAGE sql AS 'SELECT 0'",
    "CREATE FUNCTION simsql_1_own() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    "CREATE TRIGGER simsql_reader BEFORE UPDATE ON article FOR EACH ROW EXECUTE FUNCTION simsql_1_own()",
):
    project.execute(statement)

from alembic_utils.pg_function import PGFunction
from alembic_utils.replaceable_entity import register_entities

register_entities([PGFunction("public", "made()", "RETURNS int LANGUAGE sql AS 'SELECT 1'")])
found = []


def collect(context, revision, directives):
    found.extend(" ".join(op.to_diff_tuple()[:2]) for op in directives[0].upgrade_ops.ops)


project.options = {
    "include_schemas": True, "include_object": mine, "process_revision_directives": collect
}
project.revise()
print(json.dumps(sorted(found)))
"""


def test_alembic_utils_leaves_simsql_alone(database, tmp_path):
    url = database.url.render_as_string(hide_password=False)
    command = [sys.executable, "-W", "ignore", "-c", COMPARE, str(tmp_path / "project"), url]
    environment = {"PYTHONPATH": f"{REPOSITORY / 'tests' / 'support'}:{REPOSITORY}"}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    assert found == [
        "create_entity PGFunction: public.made()",
        "drop_entity PGFunction: public.simsql_1_own()",
        "drop_entity PGTrigger: public.simsql_reader False public.article",
    ], f"{len(found)} differences"
