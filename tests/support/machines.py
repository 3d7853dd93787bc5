"""Machines of an administrator, each with a server: `sudo -u postgres`, `systemctl` and the folders of Debian."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
from own_server import run_as_owner
from servers import SETTINGS, all_programs

from simsql.database import install_schema, open_engine
from simsql.server.binaries import server_account
from simsql.server.postgres_server import PostgresServer

_SUDO = """#!{python} -IS
import os, shutil, sys
command = sys.argv[1:]
program = shutil.which(command[2 if command[0] == "-u" else 0])  # another user may not read the modules of Python
if command[0] == "-u":
    command = command[2:]
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid({account.gid})
        os.setuid({account.uid})
os.execv(program, command)
"""
_SYSTEMCTL = """#!{python}
import sys
from pathlib import Path
from simsql.server.postgres_server import PostgresServer
servers = {servers}
action, unit = sys.argv[1:]
programs, data, settings = servers[unit.removeprefix("postgresql@")]
getattr(PostgresServer(Path(programs), Path(data), settings), action)()
"""


@dataclass(frozen=True)
class Machines:
    """Their servers by the names of the hosts: the data are in /var/lib/postgresql/HOST of the commands."""

    folder: Path
    servers: dict[str, PostgresServer]

    @property
    def programs(self) -> Path:
        return self.folder / "bin"

    def resolve(self, code: str) -> str:
        """Replace the folders of the data and of the programs by those that are here."""
        for major, program in all_programs().items():
            code = code.replace(f"/usr/lib/postgresql/{major}/bin", str(program.bin_folder))
        return code.replace("/var/lib/postgresql", str(self.folder))

    def urls(self) -> dict[str, str]:
        """URLs of the databases `app` for SQLAlchemy and libpq, whether the servers run or not."""
        return {
            host: f"postgresql://postgres@/app?host={server.data_folder}" for host, server in self.servers.items()
        }

    def connect(self, host: str, database: str = "app") -> psycopg.Connection:
        where = self.servers[host].url().query
        return psycopg.connect(dbname=database, user="postgres", autocommit=True, **where)


@contextlib.contextmanager
def run_machines(folder: Path, hosts: Sequence[str], code: str) -> Iterator[Machines]:
    """Run a server for each host unless the code makes its data; the first one has simsql in its database `app`.

    The server of `standby` follows the first one, and that of `old` is of an older version.
    """
    programs = all_programs()
    account = server_account(folder / "none")
    os.chown(folder, account.uid, account.gid)
    settings = SETTINGS | {"statement_timeout": "60s", "archive_command": f"cp %p {folder}/archive/%f"}
    if "/archive" in code:
        settings |= {"archive_mode": "on", "wal_level": "replica"}
    servers = {
        host: PostgresServer(
            programs[16 if host == "old" and 16 in programs else max(programs)].bin_folder, folder / host, settings
        )
        for host in hosts
    }
    machines = Machines(folder, servers)
    for name in ("bin", "archive"):
        (folder / name).mkdir()
        os.chown(folder / name, account.uid, account.gid)
    listed = {
        host: (str(server.bin_folder), str(server.data_folder), server.settings)
        for host, server in servers.items()
    }
    for name, text in {"sudo": _SUDO, "systemctl": _SYSTEMCTL}.items():
        (machines.programs / name).write_text(text.format(python=sys.executable, account=account, servers=listed))
        (machines.programs / name).chmod(0o755)
    try:
        for host, server in servers.items():
            if re.search(rf"/var/lib/postgresql/{host}\b", code) and host not in hosts[:1]:
                continue
            if host == "standby":
                _back_up(servers[hosts[0]], server)
                server.start()
                continue
            server.init()
            server.start()
            with machines.connect(host, "postgres") as connection:
                connection.execute("CREATE DATABASE app")
            if host == hosts[0]:
                engine = open_engine(server.url("app"))
                install_schema(engine)
                engine.dispose()
        yield machines
    finally:
        for server in servers.values():
            server.stop()


def _back_up(source: PostgresServer, copy: PostgresServer) -> None:
    account = server_account(source.data_folder)
    copy.data_folder.mkdir(mode=0o700)
    os.chown(copy.data_folder, account.uid, account.gid)
    run_as_owner(
        source,
        "pg_basebackup",
        *("--pgdata", copy.data_folder, "--write-recovery-conf", "--checkpoint=fast", "--no-sync"),
        *("--host", source.data_folder, "--username", "postgres"),
    )
