"""Every step of the files in docker/, run as a container would run it, without a container engine."""

import contextlib
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from citus import Citus
from program import environment, temporary_folder, wait_until
from servers import Server
from sqlalchemy import URL

REPOSITORY = Path(__file__).parents[1]
FOLDER = REPOSITORY / "docker"
PASSWORDS = {"POSTGRES_PASSWORD": 'it\'s "secret"', "BACKEND_PASSWORD": "o'th\\er $1"}


@dataclass
class Stage:
    """A stage of a Dockerfile, as a folder in the place of its root."""

    root: Path
    folder: Path
    steps: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)

    def path(self, name: str) -> Path:
        return self.root / name.lstrip("/") if name.startswith("/") else self.folder / name


class Builder:
    """Runs Dockerfiles in folders below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.variables = environment(None)
        self._new_python()

    def _new_python(self) -> None:
        """A Python as the image has, which sees what is installed here, so that nothing has to be fetched."""
        folder = self.root / "python"
        venv.create(folder, with_pip=False)
        (packages,) = folder.glob("lib/python*/site-packages")
        own = next(path for path in sys.path if path.endswith("site-packages"))
        (packages / "outer.pth").write_text(f"{own}\n")
        for name in ("pip", "alembic", "uvicorn"):
            program = folder / "bin" / name
            program.write_text(f'#!/bin/sh\nexec "{folder}/bin/python" -m {name} "$@"\n')
            program.chmod(0o755)
        self.variables["PATH"] = f"{folder / 'bin'}:{Path(sys.executable).parent}:{self.variables['PATH']}"
        self.variables |= {
            "PIP_NO_BUILD_ISOLATION": "0",
            "PIP_NO_INDEX": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        self.variables |= {"PIP_ROOT_USER_ACTION": "ignore", "PIP_NO_WARN_SCRIPT_LOCATION": "1"}
        self.variables.pop("PYTHONPATH", None)

    def build(self, file: str) -> Stage:
        """Run a Dockerfile; return its last stage."""
        stages: dict[str, Stage] = {}
        stage = Stage(self.root, self.root)
        lines = (FOLDER / file).read_text(encoding="utf-8").replace("\\\n", "")
        for line in lines.splitlines():
            match line.split():
                case [] | ["#", *_]:
                    pass
                case ["FROM", _, *name]:
                    root = self.root / f"{file}-{len(stages)}"
                    root.mkdir()
                    stage = stages[name[1] if name else ""] = Stage(root, root)
                case ["WORKDIR", name]:
                    stage.folder = stage.path(name)
                    stage.folder.mkdir(parents=True, exist_ok=True)
                case ["COPY", *names]:
                    source = REPOSITORY
                    if names[0].startswith("--from="):
                        source = stages[names.pop(0).removeprefix("--from=")].root
                    for name in names[:-1]:
                        copy(source / name.lstrip("/"), stage.path(names[-1]), names[-1])
                case ["RUN", *_]:
                    self.run(stage, line.removeprefix("RUN "))
                case ["CMD", *_]:
                    stage.command = json.loads(line.removeprefix("CMD "))
                case ["USER" | "EXPOSE", _]:
                    pass
                case _:
                    pytest.fail(f"{file}: nobody knows how to test {line}")
        return stage

    def run(self, stage: Stage, command: str, **variables: str) -> None:
        result = subprocess.run(
            ["sh", "-c", command],
            cwd=stage.folder,
            env=self.variables | variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"


def copy(source: Path, target: Path, written: str) -> None:
    assert is_in_context(source), f".dockerignore leaves {source} out"
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        if written.endswith("/"):
            target.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def is_in_context(path: Path) -> bool:
    if not path.is_relative_to(REPOSITORY):
        return True  # of another stage
    ignored = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    return ignored[0] == "*" and f"!{path.relative_to(REPOSITORY).parts[0]}" in ignored


def interpolate(value: str, given: dict[str, str]) -> str:
    """What compose puts in the place of ${NAME:?message}, and what it says without it."""

    def replace(match: re.Match[str]) -> str:
        if match[1] not in given:
            raise KeyError(f"required variable {match[1]} is missing a value: {match[2]}")
        return given[match[1]]

    return re.sub(r"\$\{(\w+):\?([^}]*)\}", replace, value)


def read_compose(name: str) -> dict[str, Any]:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return read_compose("compose.yaml")["services"]


def test_no_password_stands_in_a_file(services):
    for file in [*FOLDER.iterdir(), *(REPOSITORY / "examples/backend").rglob("*.*")]:
        if file.is_file() and file.suffix != ".pyc":
            # What compose and psql put in from a variable.
            text = re.sub(r"\$\{\w+:\?[^}]*\}|:'\w+'", "", file.read_text(encoding="utf-8"))
            assert not re.search(r"PASSWORD\w*['\"]?[ ]*[:=][ ]*['\"]?\w", text, re.IGNORECASE), file
            assert not re.search(r"://[^/\s@]*:[^/\s@]*@", text), file
    for service in [*services.values(), *read_compose("citus.compose.yaml")["services"].values()]:
        passwords = {name: value for name, value in service["environment"].items() if "PASSWORD" in name}
        assert passwords
        for value in passwords.values():
            with pytest.raises(KeyError, match="missing a value"):
                interpolate(value, {})


def test_the_data_is_in_a_volume_that_the_compose_file_declares():
    compose = read_compose("compose.yaml")
    (data,) = (mount for mount in compose["services"]["database"]["volumes"] if not mount.startswith("."))
    assert data.split(":")[0] in compose["volumes"]
    # Since PostgreSQL 18 the image keeps its data in a folder of the version below this one.
    assert data.split(":")[1] == "/var/lib/postgresql"
    assert "FROM postgres:18\n" in (FOLDER / "postgres.Dockerfile").read_text(encoding="utf-8")


@contextlib.contextmanager
def first_start(server: Server, builder: Builder, image: Stage, service: dict[str, Any]) -> Iterator[URL]:
    """A database as the entrypoint of the image postgres leaves it."""
    with server.new_database(template="template0") as url:
        variables = {name: interpolate(value, PASSWORDS) for name, value in service["environment"].items()}
        variables |= {"POSTGRES_DB": str(url.database), "PGHOST": url.query["host"], "PGPORT": url.query["port"]}
        variables["PATH"] = f"{server.program.bin_folder}:{builder.variables['PATH']}"
        scripts = {path.name: path for path in (image.root / "docker-entrypoint-initdb.d").iterdir()}
        for mount in service["volumes"]:
            source, target = mount.split(":")[:2]
            if target.startswith("/docker-entrypoint-initdb.d/"):
                scripts[Path(target).name] = FOLDER / source
        for name in sorted(scripts):
            script = shlex.quote(str(scripts[name]))
            if name.endswith(".sh"):
                builder.run(image, script, **variables)
            else:
                psql = "psql -v ON_ERROR_STOP=1 --no-psqlrc --no-password --quiet"
                builder.run(
                    image, f'{psql} --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" -f {script}', **variables
                )
        yield url


def test_the_images_run_the_service(server, services):
    with temporary_folder(None) as root, contextlib.ExitStack() as stack:
        builder = Builder(root)
        database = builder.build("postgres.Dockerfile")
        backend = builder.build("backend.Dockerfile")
        stack.callback(server.execute, "DROP ROLE IF EXISTS backend")
        url = stack.enter_context(first_start(server, builder, database, services["database"]))
        connection = stack.enter_context(contextlib.closing(server.connect(url.database)))
        password = connection.execute("SELECT rolpassword FROM pg_authid WHERE rolname = 'backend'").fetchone()
        assert password[0].startswith("SCRAM-SHA-256$")
        assert connection.execute("SELECT count(*) FROM simsql.indexes").fetchone() == (0,)

        # In the place of the container's addresses stand those of this test.
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])

        def variables_of(name: str) -> dict[str, str]:
            found = {key: interpolate(value, PASSWORDS) for key, value in services[name]["environment"].items()}
            assert found["DATABASE_URL"] == "postgresql+psycopg://backend@database/articles"
            found["DATABASE_URL"] = url.set(username="backend").render_as_string()
            return found

        def check(name: str) -> None:
            kind, *command = services[name]["healthcheck"]["test"]
            assert kind == "CMD"
            here = {
                "--host=127.0.0.1": f"--host={url.query['host']}",
                "--dbname=articles": f"--dbname={url.database}",
            }
            command = [here.get(part, part).replace(":8000", f":{port}") for part in command]
            path = f"{server.program.bin_folder}:{builder.variables['PATH']}"
            builder.run(backend, shlex.join(command), PATH=path, PGPORT=url.query["port"])

        check("database")
        builder.run(backend, shlex.join(services["migrate"]["command"]), **variables_of("migrate"))
        command = [port if part == "8000" else part for part in backend.command]
        assert port in command
        with subprocess.Popen(
            command, cwd=backend.folder, env=builder.variables | variables_of("backend"), stderr=subprocess.DEVNULL
        ) as process:
            try:

                def answers() -> bool:
                    assert process.poll() is None
                    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(port))):
                        return True
                    return False

                wait_until(answers, "the service to listen")
                check("backend")
            finally:
                process.terminate()
        check_the_worker(builder, services["worker"], url.set(username="backend"), connection)


def check_the_worker(builder: Builder, service: dict[str, Any], url: URL, connection: Any) -> None:
    """It becomes healthy, and fingerprints what psql writes."""
    connection.execute("INSERT INTO author (name) VALUES ('Ada')")
    connection.execute("INSERT INTO article (author_id, title, body) VALUES (1, 'by psql', 'some words')")
    stage = f" AS {service['build']['target']}\n"
    assert stage in (FOLDER.parent / service["build"]["dockerfile"]).read_text(encoding="utf-8")
    assert service["environment"].keys() == {"SIMSQL_DATABASE", "PGPASSWORD"}
    assert service["environment"]["SIMSQL_DATABASE"] == "postgresql://backend@database/articles"
    variables = builder.variables | {"SIMSQL_DATABASE": url.render_as_string()}
    kind, healthy = service["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    here = {"/tmp/health": str(builder.root / "health")}
    command = [here.get(part, part) for part in service["command"]]
    check = ["sh", "-c", " ".join(here.get(part, part) for part in healthy.split())]
    with subprocess.Popen(command, env=variables) as process:
        try:
            wait_until(lambda: subprocess.run(check, check=False).returncode == 0, "a healthy worker", process)
            missing = "SELECT FROM article WHERE fingerprint IS NULL"
            wait_until(lambda: not connection.execute(missing).fetchall(), "a fingerprint", process)
        finally:
            process.terminate()


def test_every_node_of_the_citus_cluster_has_a_volume_and_is_healthy_before_it_is_registered():
    compose = read_compose("citus.compose.yaml")
    services = compose["services"]
    nodes = {name: service for name, service in services.items() if "wal_level=logical" in service["command"]}
    assert {service["image"] for service in [*nodes.values(), services["nodes"]]} == {"citusdata/citus:13.2.0"}
    assert [service["volumes"] for service in nodes.values()] == [
        [f"{name}:/var/lib/postgresql/data"] for name in nodes
    ]
    assert set(nodes) == set(compose["volumes"])
    assert services["nodes"]["depends_on"] == {name: {"condition": "service_healthy"} for name in nodes}
    assert services["nodes"]["environment"]["PGHOST"] in nodes
    workers = {worker.removesuffix(":5432") for worker in services["nodes"]["environment"]["WORKERS"].split()}
    assert workers == set(nodes) - {"coordinator"}
    assert services["migrate"]["depends_on"] == {"nodes": {"condition": "service_completed_successfully"}}
    assert services["migrate"]["build"] == read_compose("compose.yaml")["services"]["migrate"]["build"]


def test_the_citus_cluster_knows_its_nodes_and_has_simsql(citus: Citus):
    services = read_compose("citus.compose.yaml")["services"]
    with citus.new_database(template="template0") as url:
        database = str(url.database)
        # The image does this on the first start of each node.
        citus.execute_everywhere("CREATE EXTENSION citus", database=database)
        # In the place of the container's addresses stand those of this test.
        nodes = ["coordinator", *(name for name in services if name.startswith("worker"))]
        here = {f"{name}:5432": f"127.0.0.1:{port}" for name, port in zip(nodes, citus.ports, strict=True)}
        here |= {"postgres@coordinator": f"postgres@127.0.0.1:{citus.ports[0]}", "articles": database}
        here |= {"coordinator": "127.0.0.1", "5432": str(citus.ports[0])}
        here |= {"/citus-nodes.sh": str(FOLDER / "citus-nodes.sh")}
        pattern = re.compile("|".join(map(re.escape, here)))

        def run(name: str) -> None:
            variables = {
                key: pattern.sub(lambda found: here[found[0]], interpolate(value, PASSWORDS))
                for key, value in services[name]["environment"].items()
            }
            programs = f"{Path(sys.executable).parent}:/usr/lib/postgresql/{citus.major}/bin"
            variables["PATH"] = f"{programs}:{os.environ['PATH']}"
            command = [here.get(part, part) for part in services[name]["command"]]
            result = subprocess.run(
                command, env=environment(None) | variables, capture_output=True, text=True, check=False
            )
            assert result.returncode == 0, result.stderr

        run("nodes")
        run("nodes")  # what is registered stays as it is
        run("migrate")
        with contextlib.closing(citus.connect(database)) as connection:
            found = connection.execute("SELECT nodeport, shouldhaveshards FROM pg_dist_node ORDER BY nodeport")
            assert found.fetchall() == [(port, port != citus.ports[0]) for port in sorted(citus.ports)]
            assert connection.execute("SELECT count(*) FROM simsql.indexes").fetchone() == (0,)
