"""`simsql` and `alembic` for shells, forked from a process that has imported them, which starts them at once."""

import atexit
import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = {"simsql": "simsql.cli", "alembic": "alembic.config"}
# What they import when they run.
_MODULES = (
    *("alembic.command", "alembic.autogenerate", "simsql.alembic", "simsql.sqlalchemy"),
    *(
        "simsql.cli.dedup",
        "simsql.cli.dedup_table",
        "simsql.cli.fingerprint",
        "simsql.cli.backfill",
        "simsql.cli.load",
        "simsql.cli.search",
    ),
    *("simsql.cli.plan", "simsql.cli.setup", "sqlalchemy.dialects.postgresql.psycopg"),
)
# It passes on its arguments, variables, folder and standard streams, and ends as the program does.
_CLIENT = """#!{python} -IS
import json, os, signal, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.connect({address!r})
    message = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [message], [0, 1, 2])
    process = int(server.recv(20))
    signal.signal(signal.SIGTERM, lambda *_: os.kill(process, signal.SIGTERM))
    sys.exit(int(server.recv(20)))
"""


@contextlib.contextmanager
def preloaded_programs(folder: Path) -> Iterator[Path]:
    """A folder with both programs, for PATH. They work in this context."""
    address = folder / "socket"
    for name in PROGRAMS:
        (folder / name).write_text(_CLIENT.format(python=sys.executable, address=str(address)), encoding="utf-8")
        (folder / name).chmod(0o755)
    with subprocess.Popen([sys.executable, __file__, address], stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            yield folder
        finally:
            server.kill()


def _serve(address: str) -> None:
    for module in (*PROGRAMS.values(), *_MODULES):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # else each process below goes through all modules
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes below
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            with connection:
                if os.fork() == 0:
                    listener.close()
                    _run(connection)


def _run(connection: socket.socket) -> None:
    """Run the program that a client asks for in another process, and tell the client its number and exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    if process := os.fork():
        for stream in streams:
            os.close(stream)
        connection.send(str(process).encode())
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        connection.send(str(code if code >= 0 else 128 - code).encode())
        os._exit(0)
    connection.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.argv, folder, variables = json.loads(message)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    code: object = 1
    try:
        importlib.import_module(PROGRAMS[Path(sys.argv[0]).name]).main()
        code = 0
    except SystemExit as end:
        code = end.code
    finally:
        # An interpreter that ends in the usual way writes to all memory, and the kernel has to copy it.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    _serve(sys.argv[1])
