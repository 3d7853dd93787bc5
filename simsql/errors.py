"""The errors simsql raises on purpose: one line that says what, where and what to do."""


class SimsqlError(Exception):
    """Something went wrong that the caller can act on. The command line prints it and exits with 1."""


class UsageError(SimsqlError):
    """The caller asked for something that cannot be. The command line prints it and exits with 2."""
