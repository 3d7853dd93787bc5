"""docs/guides/another-language.md from nothing and back: a schema in SQL, a writer in shell, and the worker."""

import configparser
import os
import random
import re
import shlex
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from documentation import REPOSITORY, read_blocks
from oracle import to_bigint
from program import PROGRAM, environment, finish, run, spawn, temporary_folder, wait_until
from servers import Server
from sqlalchemy import URL

from simsql import simhash
from simsql.database import create_index

PAGE = REPOSITORY / "docs/guides/another-language.md"
UNIT = REPOSITORY / "examples/simsql-backfill.service"


class Shell:
    """A folder with the files of the page, and a shell in it for a database."""

    def __init__(self, server: Server, folder: Path, url: URL) -> None:
        self.folder = folder
        for block in read_blocks(PAGE):
            if block.file:
                (folder / block.file).write_text(block.code, encoding="utf-8")
        self.url = url.render_as_string(hide_password=False)
        self.variables = environment(None, SIMSQL_DATABASE=self.url.replace("+psycopg", ""))
        path = (PROGRAM.parent, server.program.bin_folder, os.environ["PATH"])
        self.variables["PATH"] = os.pathsep.join(map(str, path))
        self.connection = server.connect(str(url.database))

    def run(self, command: str, text: str = "") -> str:
        result = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.variables,
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
        return result.stdout

    def missing(self) -> list[str]:
        """The texts without their fingerprint; none may have that of another one."""
        rows = self.connection.execute("SELECT body, fingerprint FROM article").fetchall()
        assert all(found is None or found == to_bigint(simhash(body)) for body, found in rows)
        return [body for body, found in rows if found is None]


def text_of(seed: int, words: int = 60) -> str:
    return " ".join(random.Random(seed).choices("abcdefghijklmnopqrstuvwxyz", k=words))


def test_the_application_gains_searches_and_claims_and_loses_them_again(server: Server) -> None:
    with temporary_folder() as folder, server.new_database(template="template0") as url:
        shell = Shell(server, folder, url)
        shell.run(
            'simsql install --sql > simsql.sql; psql -q "$SIMSQL_DATABASE" -v ON_ERROR_STOP=1 -f article.sql'
        )
        as_it_was = shell.run('pg_dump -s "$SIMSQL_DATABASE" | grep -v restrict')
        shell.run('psql -q "$SIMSQL_DATABASE" -v ON_ERROR_STOP=1 -f simsql.sql -f index.sql')
        texts = [text_of(seed) for seed in range(40)]
        command = ["backfill", "article", "--follow", "--database", shell.url]
        worker = spawn(*command, home=folder)
        shell.run("sh write.sh", "".join(f"{text}\n" for text in texts))
        wait_until(lambda: not shell.missing(), "fingerprints of all rows", worker)
        shell.connection.execute("UPDATE article SET body = body || ' changed' WHERE id % 2 = 0")
        wait_until(lambda: not shell.missing(), "fingerprints of the changed rows", worker)

        (folder / "text.txt").write_text(f"{texts[4].upper()}!")
        assert shell.run("sh search.sh text.txt").splitlines()[0] == "5|0"
        assert shell.run("sh claim.sh text.txt") == ""

        def claim(number: int) -> str:
            (folder / f"{number}.txt").write_text(f"{text_of(100)} {number}")
            return shell.run(f"sh claim.sh {number}.txt")

        with ThreadPoolExecutor(4) as pool:
            assert sorted(pool.map(claim, range(4)))[:3] == ["", "", ""]
        assert shell.connection.execute("SELECT count(*) FROM article").fetchone() == (41,)
        (folder / "nothing.txt").write_text("?!")
        assert shell.run("sh claim.sh nothing.txt; sh search.sh nothing.txt") != ""
        assert shell.missing() == ["?!"]

        database = ("--database", shell.url)
        run("status", "--check", *database).done()
        assert run("index", "verify", "article", "--texts", "--sample", "0", *database).done().lines == []
        check_the_dump(server, shell)
        worker.send_signal(signal.SIGTERM)
        assert finish(worker).err == "simsql: terminated\n"
        run("uninstall", "--drop-indexes", *database).done()
        index = shell.run('psql -qAt "$SIMSQL_DATABASE" -c "DROP INDEX article_fingerprint_idx"')
        assert (index, shell.run('pg_dump -s "$SIMSQL_DATABASE" | grep -v restrict')) == ("", as_it_was)
        shell.connection.close()


def check_the_dump(server: Server, shell: Shell) -> None:
    """The dump of the schema that the page makes leads to a database in which everything works."""
    (dump,) = re.findall(r"^\$ (pg_dump .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    shell.run(dump)
    with server.new_database(template="template0") as url:
        new = url.render_as_string(hide_password=False).replace("+psycopg", "")
        shell.run(f"psql -q {shlex.quote(new)} -v ON_ERROR_STOP=1 -f structure.sql -f simsql.sql -f index.sql")
        with psycopg.connect(new, autocommit=True) as connection:
            connection.execute("INSERT INTO article (body) VALUES ('a rose is a rose')")
            run("backfill", "article", "--database", new).done()
            found = connection.execute(
                "SELECT distance FROM simsql.near('article', %s)", [to_bigint(simhash("a rose is a rose"))]
            )
            assert found.fetchall() == [(0,)]
        run("status", "--check", "--database", new).done()
        assert run("index", "verify", "--database", new).done().lines == []


def test_the_unit_runs_a_worker_that_tells_systemd(connection, database, database_url, tmp_path):
    unit = configparser.ConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT, encoding="utf-8")
    service = unit["Service"]
    connection.execute("CREATE TABLE article (id bigint PRIMARY KEY, body text, fingerprint bigint)")
    create_index(database, "article", "fingerprint", sources="body")
    (command,) = re.findall("^/opt/simsql/bin/simsql (.*)", service["ExecStart"])
    name, _, url = service["Environment"].partition("=")
    assert (name, service["Type"]) == ("SIMSQL_DATABASE", "notify")
    assert url.startswith("postgresql://")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd, temporary_folder() as home:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        variables = {name: database_url, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        worker = spawn(*shlex.split(command), home=home, variables=variables)
        assert systemd.recv(100) == b"READY=1\nWATCHDOG=1"
        worker.send_signal(signal.SIGTERM)
        assert finish(worker).code == int(service["SuccessExitStatus"])


def test_systemd_understands_the_unit(tmp_path):
    try:
        command = ["systemd-analyze", "verify", str(tmp_path / UNIT.name)]
        (tmp_path / UNIT.name).write_text(UNIT.read_text().replace("/opt/simsql/bin/simsql", str(PROGRAM)))
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("systemd-analyze is not installed")
    assert [line for line in result.stderr.splitlines() if UNIT.name in line] == []
