"""The example's two commits as docs/guides/django.md tells them, and all other blocks about Django."""

import json
import subprocess
import sys
from pathlib import Path

import psycopg
from commits import write_commits
from documentation import DJANGO as PAGE
from documentation import DJANGO_MODELS, assert_output, read_blocks, read_commands
from program import environment, temporary_folder
from servers import Server

from simsql import similarity

# Runs steps in one process, which takes less time than one for each: commands of manage.py, code of the page, and
# requests. Each step prints what it would print.
RUNNER = """
import contextlib, io, json, os, shlex, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
sys.path.insert(0, os.getcwd())
import django
django.setup()
from django.core.management import execute_from_command_line
from django.test import Client
names, client, printed = {"__name__": "page"}, Client(), []
for kind, what in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as output:
        if kind == "command":
            try:
                execute_from_command_line(shlex.split(what)[1:])
            except SystemExit as end:
                assert not end.code, f"{what}: {end.code}"
        elif kind == "code":
            exec(compile(what, "django.md", "exec"), names)
        else:
            path, body = what
            answer = client.post(path, body, content_type="application/json") if body else client.get(path)
            output.write(json.dumps([answer.status_code, answer.json() if answer.status_code != 404 else None]))
    printed.append(output.getvalue())
print(json.dumps(printed))
"""


def run(commit: Path, variables: dict[str, str], *steps: tuple[str, object]) -> list[str]:
    command = [sys.executable, "-W", "error", "-c", RUNNER]
    result = subprocess.run(
        command, input=json.dumps(steps), cwd=commit, env=variables, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def article(body: str) -> tuple[str, object]:
    return "request", ["/articles", {"author": 1, "title": "new", "body": body}]


def test_the_project_gains_near_duplicate_search_and_loses_it_again(server: Server) -> None:
    with (
        temporary_folder() as folder,
        server.new_database(template="template0") as url,
        psycopg.connect(dbname=url.database, user="postgres", autocommit=True, **url.query) as connection,
    ):
        before, after = write_commits(folder, "django", PAGE)
        variables = environment(
            None, PGDATABASE=url.database, PGUSER="postgres", PGHOST=url.query["host"], PGPORT=url.query["port"]
        )
        assert "simsql" not in "".join(path.read_text() for path in before.rglob("*.py"))
        text = "one text that everybody posts, again and again, with a few words changed in {} of its copies"
        first, second = text.format("some"), text.format("most")
        fill = (
            "from articles.models import Article, Author; ada = Author.objects.create(name='Ada');"
            "Article.objects.bulk_create(Article(author=ada, title=str(n), body=f'text {n}') for n in range(298))"
        )
        manage = "command", "python manage.py migrate"
        posts = [article(first), article(second)]
        old = run(before, variables, manage, ("code", fill), *posts, ("request", ["/articles/1/similar", None]))
        assert [json.loads(answer)[0] for answer in old[2:]] == [201, 201, 404]
        tables = server.run("pg_dump", "--schema-only", "--restrict-key=x", url.database)

        # The pages, block by block.
        migration = after / "articles/migrations/0002_near_duplicates.py"
        kept = migration.read_text(encoding="utf-8")
        migration.unlink()
        steps, expected = [], []
        for block in (*read_blocks(PAGE), *read_blocks(DJANGO_MODELS)):
            if block.language == "console":
                for command, output in read_commands(block):
                    steps.append(("command", command))
                    expected.append(output)
            elif block.language == "python":
                steps.append(("code", block.code))
                expected.append(block.output or "")
        makemigrations = steps.pop(0)
        printed = run(after, variables, makemigrations)
        assert_output(printed[0], expected.pop(0), PAGE)
        check_same_operations(migration.read_text(encoding="utf-8"), kept)
        migration.write_text(kept, encoding="utf-8")
        steps += [article(first), article("a new text"), ("request", ["/articles/299/similar", None])]
        back = "command", "python manage.py migrate articles 0001"
        printed = run(after, variables, *steps, back)
        for (_, step), output, shown in zip(steps, printed, expected, strict=False):
            assert_output(output, shown, f"{PAGE}: {step}")
        known, new, similar = (json.loads(answer) for answer in printed[len(expected) : -1])
        assert known == [409, {"error": "nearly the same as article 299"}]
        assert new[0] == 201
        (found,) = similar[1]["articles"]
        assert (found["id"], found["similarity"]) == (300, similarity(first, second))
        assert server.run("pg_dump", "--schema-only", "--restrict-key=x", url.database) == tables
        assert connection.execute("SELECT count(*) FROM articles_article").fetchone() == (303,)


def check_same_operations(written: str, kept: str) -> None:
    """Django writes what the example has, but for the first operation."""
    first, second = {}, {}
    exec(written, first)
    exec(kept, second)
    first, second = first["Migration"].operations, second["Migration"].operations
    assert type(second.pop(0)).__name__ == "InstallSimsql"
    assert [one.deconstruct()[0] for one in first] == [other.deconstruct()[0] for other in second]
    assert first[0].field.deconstruct() == second[0].field.deconstruct()
    assert first[1].index == second[1].index
