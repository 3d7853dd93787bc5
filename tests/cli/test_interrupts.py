"""An interrupt ends a run as an interrupt, wherever it comes."""

import errno

import pytest

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
        (OSError(errno.EMFILE, "Too many open files"), "too many open files: allow more, as with ulimit -n 1024"),
    ],
)
def test_other_errors_are_reported(monkeypatch, capsys, error, message):
    def fail():
        raise error

    monkeypatch.setattr(_app, "_invoke", fail)
    assert _app.run_app() == 1
    assert capsys.readouterr().err == f"simsql: error: {message}\n"
