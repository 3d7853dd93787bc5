"""The systems that simsql is compared with. Each is imported only where it is measured, and may be missing."""

import importlib
import shutil
from types import ModuleType

from benchmarks.harness import Run

INSTALL = "pip install '.[bench]'"


def import_peer(run: Run, package: str, module: str) -> ModuleType | None:
    """Return the module of a peer; None, which the report says, where it is missing or not wanted."""
    if not run.options.peers:
        return None
    try:
        return importlib.import_module(module)
    except ImportError:
        run.report.skip(f"{package} is not installed: {INSTALL}")
        return None


def find_program(run: Run, program: str) -> str | None:
    """Return the path of a peer's program; None, which the report says, where it is missing or not wanted."""
    if not run.options.peers:
        return None
    path = shutil.which(program)
    if path is None:
        run.report.skip(f"{program} is not on the PATH: build it from https://github.com/seomoz/simhash-cpp")
    return path
