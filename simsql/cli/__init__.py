"""The command line. It parses, calls and prints; the work is done elsewhere.

Exit codes: 0 done, 1 the job failed, 2 wrong usage; 130 after Ctrl-C, 143 after SIGTERM and 129 after
SIGHUP.
"""

import gc
import sys
from importlib.util import find_spec

from simsql.cli import _process

# Packages of the extra. Some of them are only imported in the middle of a run.
_NEEDED = ["jinja2", "rich", "typer", *["backports.zstd"] * (sys.version_info < (3, 14))]


def main() -> None:
    """Run the command line and exit."""
    # Imports leave next to no garbage, and looking for it takes a third of their time: see `command`.
    gc.disable()
    code = _process.run(_run_app)
    gc.freeze()  # else Python looks through all modules once more as it ends
    sys.exit(code)


def _run_app() -> int:
    missing = [name for name in _NEEDED if find_spec(name.partition(".")[0]) is None]
    if missing:
        _process.complain(f"error: the command line needs simsql[cli]: pip install {' '.join(missing)}")
        return 1
    # Imported here, where Ctrl-C is caught, because it takes a tenth of a second or more.
    from simsql.cli._app import run_app

    return run_app()
