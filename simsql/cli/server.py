"""`simsql server`: run an embedded server."""

import signal
from pathlib import Path
from typing import Annotated

import typer

from simsql.cli._app import command
from simsql.cli._database import postgresql_errors
from simsql.server import start_embedded


@command("server")
def server_command(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder for the server's data; created if it is missing.")
    ],
) -> None:
    """Run an embedded server until Ctrl-C.

    Start the server, print its URL and wait for Ctrl-C or SIGTERM. Meanwhile, connect with psql, --database or any
    program on this machine. The last process that uses the server stops it.
    """
    with start_embedded(folder) as server:
        with postgresql_errors():
            url = server.url().set(drivername="postgresql")
        print(url.render_as_string(hide_password=False), flush=True)
        while True:
            signal.pause()
