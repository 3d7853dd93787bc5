"""The command line. It parses, calls and prints; the work is done elsewhere.

Exit codes: 0 done, 1 the job failed, 2 wrong usage; 130 after Ctrl-C, 143 after SIGTERM and 129 after
SIGHUP.
"""

import signal

from simsql.cli._app import app as app
from simsql.cli._app import prepare_streams, stop_on_signal


def main() -> None:
    """Run the command line."""
    prepare_streams()
    signal.signal(signal.SIGTERM, stop_on_signal)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup leaves it
        signal.signal(signal.SIGHUP, stop_on_signal)
    app(prog_name="simsql")
