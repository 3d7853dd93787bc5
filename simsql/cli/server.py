"""`simsql server`: an embedded server for as long as this process lives."""

import signal
from pathlib import Path
from typing import Annotated

import typer

from simsql.cli._app import command
from simsql.cli._database import postgresql_errors
from simsql.server.embedded import start_embedded


@command("server")
def server_command(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of the server's data, made if it is missing. It stays.")
    ],
) -> None:
    """Hold an embedded server open.

    Starts the server, prints its URL and waits for Ctrl-C or SIGTERM. Connect with psql, with --database, or with
    any program on this machine meanwhile. The last one that uses the server stops it.
    """
    with start_embedded(folder) as server:
        with postgresql_errors():
            url = server.url().set(drivername="postgresql")
        print(url.render_as_string(hide_password=False), flush=True)
        while True:
            signal.pause()
