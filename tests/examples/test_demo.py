"""What `make demo` shows of searches, in SQL and through a model."""

import re
import shutil
import subprocess
import sys

from documentation import REPOSITORY
from program import environment

PROGRAM = REPOSITORY / "examples/demo.py"


def test_the_demo_shows_the_same_search_in_sql_and_through_a_model(tmp_path):
    shutil.copy(REPOSITORY / "LICENSE", tmp_path / "copy")
    licence = (REPOSITORY / "LICENSE").read_text()
    (tmp_path / "other").write_text(
        licence.replace("2026", "1999").replace("without restriction", "with restriction")
    )
    (tmp_path / "readme").write_text((REPOSITORY / "README.md").read_text())
    # More than are shown, in another order than by name.
    for name, of in {"c": "copy", "b": "copy", "a": "copy", "another": "other"}.items():
        shutil.copy(tmp_path / of, tmp_path / name)
    command = [sys.executable, PROGRAM, "c", "b", "a", "copy", "other", "another", "readme"]
    found = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True, env=environment(None)
    )
    by_sql, plan, by_model = re.split("\n-- ", found.stdout)[2:5]
    rows = [re.findall(r"^ +(\d+)  (.+)$", part, re.MULTILINE) for part in (by_sql, by_model)]
    assert rows[0] == rows[1]
    assert [name for _, name in rows[0]] == ["c", "b", "a", "copy", "other"]
    assert "strategy: exact, radius: 0" in plan
    assert len(re.findall(r"Index Cond: \(\(key >= .* AND \(key <= ", plan)) == 4
    assert len(re.findall(r"Filter: \(bit_count", plan)) == 4
    assert re.search(r"public\.document +fingerprint .* ready", found.stdout)
