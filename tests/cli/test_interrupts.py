"""An interrupt ends a run as an interrupt, wherever it comes."""

import errno
import os
import signal
import subprocess
import sys
import time

import pytest
from program import run

from simsql.cli import _app, _process
from simsql.errors import SimsqlError


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), _process.Terminated(143)])
def test_an_error_of_the_cleanup_does_not_hide_the_interrupt(monkeypatch, capsys, interrupt):
    """As where Ctrl-C comes between sending a statement and waiting for it: then the rollback fails."""

    def fail():
        try:
            try:
                raise interrupt
            finally:
                int("not a number")
        except ValueError as error:
            raise SimsqlError("PostgreSQL: another command is already in progress") from error

    monkeypatch.setattr(_app, "_invoke", fail)
    with pytest.raises(KeyboardInterrupt) as raised:
        _app.run_app()
    assert raised.value is interrupt
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (SimsqlError("PostgreSQL: no such table"), "PostgreSQL: no such table"),
        (MemoryError(), "there is not enough memory: allow more, or read less at once"),
        (OSError(errno.EMFILE, "Too many open files"), "too many open files: allow more, as with ulimit -n 1024"),
    ],
)
def test_other_errors_are_reported(monkeypatch, capsys, error, message):
    def fail():
        raise error

    monkeypatch.setattr(_app, "_invoke", fail)
    assert _app.run_app() == 1
    assert capsys.readouterr().err == f"simsql: error: {message}\n"


class _Deleted:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        sum(range(1000))


@pytest.mark.parametrize(("first", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_only_the_first_signal_interrupts(monkeypatch, first, code):
    """Such as a second Ctrl-C, or one that comes from the terminal and from the parent."""
    done = []

    def work():
        try:
            os.kill(os.getpid(), first)
            sum(range(1000))
        finally:
            for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
                os.kill(os.getpid(), number)
            done.append("cleaned up")

    monkeypatch.setattr(_app, "_invoke", work)
    found = run()
    assert (found.code, done) == (code, ["cleaned up"])
    assert found.err == f"simsql: {'interrupted' if first == signal.SIGINT else 'terminated'}\n"


def test_an_interrupt_where_python_forgets_exceptions_is_raised_again(monkeypatch):
    def work():
        _Deleted()
        time.sleep(60)
        pytest.fail("the interrupt is lost")

    monkeypatch.setattr(_app, "_invoke", work)
    found = run()
    assert (found.code, found.err) == (130, "simsql: interrupted\n")


_FIRST_PROCESS = """
import signal
from simsql.processes import map_in_processes

def blocked(_):
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])

if __name__ == "__main__":
    print({*map_in_processes(blocked, iter(range(20)), 2, lambda _: 1.0)})
"""


def test_ctrl_c_is_blocked_in_the_first_process(tmp_path):
    """It starts multiprocessing's tracker, which ends a block in most versions of Python."""
    (tmp_path / "program.py").write_text(_FIRST_PROCESS)
    command = [sys.executable, str(tmp_path / "program.py")]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "True" in found.stdout  # the first batch is another process's
