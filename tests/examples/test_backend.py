"""The example's two commits as docs/guides/backend.md tells them: over HTTP, on a database with articles in it."""

import contextlib
import random
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import httpx
import psycopg
from commits import write_commits
from documentation import BACKEND as PAGE
from documentation import assert_output, read_blocks, read_commands
from oracle import distance
from preloaded import preloaded_programs
from program import environment, temporary_folder, wait_until
from servers import Server

from simsql import DEFAULT_RECIPE, simhash, simhash_many
from simsql.fingerprint import similarities

ARTICLES = 50_000
WORDS = [f"word{number}" for number in range(3_000)]


class Shell:
    """Runs the page's commands, one after the other."""

    def __init__(self, url: str, programs: Path) -> None:
        self.variables = environment(None, DATABASE_URL=url)
        self.variables["PATH"] = f"{programs}:{self.variables['PATH']}"
        blocks = [block for block in read_blocks(PAGE) if block.language == "console"]
        self._left = [command for block in blocks for command in read_commands(block)]

    def run_next(self, folder: Path, beginning: str) -> None:
        command, output = self._left.pop(0)
        assert command.startswith(beginning)
        assert_output(self.run(folder, command), output, f"{PAGE}: {command}")

    def run(self, folder: Path, command: str) -> str:
        result = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=self.variables, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
        return result.stdout

    def check_that_all_was_run(self) -> None:
        assert self._left == []


@contextlib.contextmanager
def running(commit: Path, variables: dict[str, str]) -> Iterator[httpx.Client]:
    """Run the service of a commit; yield a client of it."""
    path = commit / "http"
    command = [sys.executable, "-m", "uvicorn", "app.main:app", "--uds", str(path), "--log-level", "warning"]
    with subprocess.Popen(command, cwd=commit, env=variables) as process:
        try:
            with httpx.Client(
                transport=httpx.HTTPTransport(uds=str(path)), base_url="http://articles", timeout=60
            ) as client:

                def listens() -> bool:
                    assert process.poll() is None
                    with socket.socket(socket.AF_UNIX) as probe:
                        return probe.connect_ex(str(path)) == 0

                wait_until(listens, "the service to listen")
                assert client.get("/health").json() == {"status": "ok"}
                yield client
        finally:
            process.terminate()


def some_text(chance: random.Random, words: int) -> list[str]:
    return chance.choices(WORDS, k=words)


def fill(connection: psycopg.Connection) -> list[str]:
    """Add an author and many articles; return their texts, which have ids from 1 on."""
    chance = random.Random(5)
    texts = [" ".join(some_text(chance, 12)) for _ in range(ARTICLES - 100)]
    for _ in range(20):
        words = some_text(chance, 80)
        for copy in range(5):
            words[copy * 16] = "changed"
            texts.append(" ".join(words))
    connection.execute("INSERT INTO author (name) VALUES ('Ada')")
    with connection.cursor() as cursor, cursor.copy("COPY article (author_id, title, body) FROM STDIN") as copy:
        for number, text in enumerate(texts, 1):
            copy.write_row((1, f"title {number}", text))
    return texts


def post(client: httpx.Client, body: str) -> httpx.Response:
    return client.post("/articles", json={"author_id": 1, "title": "new", "body": body})


def post_together(client: httpx.Client, chance: random.Random) -> list[int]:
    """Post two texts at the same moment that differ in one word of many; return the sorted status codes."""
    words = some_text(chance, 200)
    texts = [" ".join([*words, last]) for last in ("one", "two")]
    assert distance(*map(simhash, texts)) <= 7  # type: ignore[arg-type]
    step = Barrier(2, timeout=30)

    def work(text: str) -> int:
        step.wait()
        return post(client, text).status_code

    with ThreadPoolExecutor(2) as threads:
        return sorted(threads.map(work, texts))


def schema_of(server: Server, database: str) -> list[str]:
    lines = server.run("pg_dump", "--schema-only", database).splitlines()
    return [line for line in lines if not line.startswith(("\\restrict", "\\unrestrict"))]  # random keys


def test_the_service_gains_near_duplicate_search_and_loses_it_again(server: Server) -> None:
    with (
        temporary_folder() as folder,
        server.new_database(template="template0") as url,
        psycopg.connect(dbname=url.database, user="postgres", autocommit=True, **url.query) as connection,
        preloaded_programs(folder) as programs,
    ):
        before, after = write_commits(folder, "backend", PAGE)
        shell = Shell(url.render_as_string(hide_password=False), programs)

        # As it was.
        shell.run(before, "alembic upgrade head")
        assert "simsql" not in "".join(path.read_text() for path in before.rglob("*.py"))
        texts = fill(connection)
        as_it_was = schema_of(server, url.database)
        with running(before, shell.variables) as old:
            assert old.post("/authors", json={"name": "Grace"}).status_code == 201
            assert old.post("/authors", json={"name": "Grace"}).status_code == 409
            assert post_together(old, random.Random(1)) == [201, 201]
            assert old.get("/articles/1").json()["body"] == texts[0]
            assert old.get("/articles/1/similar").status_code == 404

            # The migration, as Alembic writes it, beside the old service.
            written = after / "migrations/versions/0002_near_duplicates.py"
            kept = written.read_text(encoding="utf-8")
            written.unlink()
            shell.run_next(after, "alembic revision --autogenerate")
            assert operations_of(written.read_text(encoding="utf-8")) == operations_of(kept)
            shell.run_next(after, "alembic upgrade head")
            shell.run(after, "alembic check")
            posted = connection.execute("SELECT body FROM article WHERE id > %s ORDER BY id", [ARTICLES])
            texts += [body for (body,) in posted]
            assert post(old, "written by the old service without a fingerprint").status_code == 201
            texts.append("written by the old service without a fingerprint")

            shell.run_next(after, "simsql backfill")
            fingerprints = simhash_many(texts).data
            stored = connection.execute("SELECT fingerprint FROM article ORDER BY id").fetchall()
            assert [fingerprint for (fingerprint,) in stored] == fingerprints.view("int64").tolist()
            with running(after, shell.variables) as new:
                check_search(new, texts)
                check_posts(new, texts)
            assert connection.execute("SELECT count(*) FROM simsql.verify('article')").fetchone() == (0,)

            shell.run_next(after, "simsql maintain")

            # And back.
            shell.run_next(after, "alembic downgrade")
            shell.check_that_all_was_run()
            assert schema_of(server, url.database) == as_it_was
            assert post_together(old, random.Random(2)) == [201, 201]


def operations_of(revision: str) -> list[str]:
    """The calls of a migration, however they are laid out."""
    code = re.sub(r"\s+", "", revision.partition("def upgrade")[2]).replace("'", '"').replace(",)", ")")
    return re.split(r"(?=op\.)", code)


def check_search(client: httpx.Client, texts: list[str]) -> None:
    found = 0
    for number in (1, 2, 777, ARTICLES - 99, ARTICLES - 1, ARTICLES, ARTICLES + 1, ARTICLES + 3):
        values = similarities([texts[number - 1]] * len(texts), texts, DEFAULT_RECIPE)
        alike = {
            place: value for place, value in enumerate(values.tolist(), 1) if value is not None and value >= 0.6
        }
        del alike[number]
        articles = client.get(f"/articles/{number}/similar").json()
        assert {article["id"]: article["similarity"] for article in articles} == alike
        shares = [article["similarity"] for article in articles]
        assert shares == sorted(shares, reverse=True)
        found += len(articles)
        nearly = client.get(f"/articles/{number}/similar", params={"similarity": 0.9}).json()
        assert nearly == [article for article in articles if article["similarity"] >= 0.9]
    assert found > 10
    assert client.get("/articles/999999999/similar").status_code == 404
    assert client.get("/articles/1/similar", params={"similarity": 60}).status_code == 422


def check_posts(client: httpx.Client, texts: list[str]) -> None:
    known = f"  {texts[776].upper()}!"
    refused = post(client, known)
    assert (refused.status_code, refused.json()["detail"]) == (409, "nearly the same as article 777")
    for seed in range(10, 18):
        assert post_together(client, random.Random(seed)) == [201, 409]
    # Texts without words have no fingerprint, and are near to nothing.
    for _ in range(2):
        taken = post(client, "?!")
        assert taken.status_code == 201
    assert client.get(f"/articles/{taken.json()['id']}/similar").json() == []
    assert client.post("/articles", json={"author_id": 99, "title": "", "body": ""}).status_code == 404
