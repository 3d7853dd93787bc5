"""A headless Chromium, driven by Playwright. Tests that need it are skipped where there is none."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str:
    """Return the program, `SIMSQL_CHROMIUM` or one on the path, or skip the test."""
    candidates = (os.environ.get("SIMSQL_CHROMIUM"), *PROGRAMS)
    found = next(filter(None, (shutil.which(name) for name in candidates if name)), None)
    if not found:
        pytest.skip("there is no Chromium: install the package chromium, or name the program in SIMSQL_CHROMIUM")
    return found


@contextmanager
def running_chromium() -> Iterator[Any]:
    """Start the browser, and stop it in the end."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    program = find_chromium()
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        yield browser
        browser.close()
