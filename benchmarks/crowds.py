"""Measure crowds: records of one template, which nearly all resemble each other: python -m benchmarks.crowds.

Each line is one run of `simsql dedup` on records that this program makes: its CPU time, its peak memory, and its
decisions. Further runs have the records in another order, or two processes.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.texts import Corpus


def _words(rng: random.Random, count: int, vocabulary: int = 20_000) -> str:
    return " ".join(f"w{int(vocabulary * rng.random() ** 2)}" for _ in range(count))


_NOTICE = "Dear {}, your order {} was shipped on day {} and will arrive within three to five working days. " + (
    "You can follow the parcel on our page with the number of the order. If nobody is at home, the driver leaves"
    " it with a neighbour or at the next post office, where we keep it for seven days. Thank you for shopping."
)
_CALL = (
    "def test_{0}(client): response = client.get('/{0}/{1}') assert response.status_code == 200 assert {2} in"
    " response.json() and response.headers['content-type'] == 'application/json' and not response.history"
)
_FORM = (
    "Application for the registration of a vehicle. Name of the applicant: {} Address: {} Make and model: {} The"
    " applicant declares that all statements above are true and complete, and that no other application for the"
    " same vehicle has been made. Remarks of the office: {}"
)

TEMPLATES: dict[str, Callable[[random.Random], str]] = {
    "notifications": lambda rng: _NOTICE.format(_words(rng, 2), rng.randrange(10**7), rng.randrange(365)),
    "function calls": lambda rng: _CALL.format(_words(rng, 1), rng.randrange(10**4), _words(rng, 1)),
    "forms": lambda rng: _FORM.format(_words(rng, 2), _words(rng, 6), _words(rng, 3), _words(rng, 12)),
    "a third shared": lambda rng: _NOTICE.format(_words(rng, 2), rng.randrange(10**7), 1) + _words(rng, 40),
}


def main() -> None:
    """Read the options, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, nargs="+", default=[2_000, 8_000, 30_000, 100_000])
    parser.add_argument("--template", choices=TEMPLATES, nargs="+", default=list(TEMPLATES))
    parser.add_argument("--simsql", default=str(Path(sys.executable).with_name("simsql")), help="the program")
    parser.add_argument("--among", type=int, default=0, help="put the records among this number of other texts")
    given = parser.parse_args()
    print(f"{'template':<16} {'records':>8} {'run':<12} {'CPU s':>7} {'MB':>6} {'clusters':>9} {'dropped':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for template in given.template:
            for records in given.records:
                rng = random.Random(records)  # noqa: S311 - no secret
                texts = [TEMPLATES[template](rng) for _ in range(records)]
                texts += Corpus(given.among, seed=1).texts()
                for run, workers in (("in order", 1), ("shuffled", 1), ("two workers", 2)):
                    numbers = list(range(len(texts)))
                    if run != "in order":
                        rng.shuffle(numbers)
                    file = Path(folder, "texts.jsonl")
                    file.write_text("".join(json.dumps({"id": n, "text": texts[n]}) + "\n" for n in numbers))
                    measured = measure(given.simsql, file, workers)
                    print(f"{template:<16} {records:>8,} {run:<12} {measured}", flush=True)


def measure(program: str, file: Path, workers: int) -> str:
    """Run the program in a process of its own, and return what it takes and decides."""
    output = file.with_name("clusters.jsonl")
    command = [program, "dedup", "--id-field", "id", str(file), "--output", str(output), "--quiet"]
    process = subprocess.Popen([*command, "--workers", str(workers)], stderr=subprocess.PIPE)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        said = process.stderr.read().decode() if process.stderr else ""
        return f"{used.ru_utime + used.ru_stime:>7.1f} {used.ru_maxrss // 1024:>6} failed: {said.strip()[-200:]}"
    clusters = [json.loads(line) for line in output.open()]
    dropped = sum(member["droppable"] for cluster in clusters for member in cluster["members"])
    return f"{used.ru_utime + used.ru_stime:>7.1f} {used.ru_maxrss // 1024:>6} {len(clusters):>9,} {dropped:>8,}"


if __name__ == "__main__":
    main()
