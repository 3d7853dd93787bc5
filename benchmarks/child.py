"""A process of its own for what is measured with its memory.

    python -m benchmarks.child find_pairs fingerprints.npy distance pairs.npy
    python -m benchmarks.child program path argument...

prints {"seconds": ..., "peak": bytes} as JSON, and "processor", the seconds of processor time, for a program. A
process that was started by a large one would be charged with its memory (Linux keeps the peak across fork and
exec), so a program is started by this small one.
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path


def run_child(*arguments: str | Path, messages: Path | None = None) -> dict[str, float]:
    """Run this module with arguments and return what it prints: seconds, the peak of memory in bytes and more.

    What a program prints on stderr goes to the file `messages`.
    """
    command = [sys.executable, "-m", "benchmarks.child", *map(str, arguments)]
    with (messages or Path(os.devnull)).open("wb") as stderr:
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=stderr, text=True).stdout
    found: dict[str, float] = json.loads(output)
    return found


def _find_all(source: str, distance: int, target: str) -> dict[str, float]:
    import numpy as np  # noqa: PLC0415 - a program is started by a process without it

    from simsql.hamming import find_pairs  # noqa: PLC0415
    from simsql.processes import usable_cores  # noqa: PLC0415

    fingerprints = np.load(source)
    start = time.perf_counter()
    pairs = find_pairs(fingerprints, distance)
    seconds = time.perf_counter() - start
    # At most: fewer processes are started where fewer pay.
    peak = peak_of() + (usable_cores() - 1) * peak_of_children()
    np.save(target, pairs)
    return {"seconds": seconds, "peak": peak}


def _run_program(command: Sequence[str]) -> dict[str, float]:
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    processor = usage.ru_utime + usage.ru_stime
    return {"seconds": seconds, "processor": processor, "peak": _in_bytes(usage.ru_maxrss)}


def peak_of(pid: int | None = None) -> int:
    """Return the peak of memory in bytes of this process, or of another that runs: 0 where there is no /proc."""
    try:
        lines = Path(f"/proc/{pid or 'self'}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0 if pid else _in_bytes(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def peak_of_children() -> int:
    """Return the peak of memory in bytes of the largest child that has ended."""
    return _in_bytes(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)


def _in_bytes(peak: int) -> int:
    return peak if sys.platform == "darwin" else peak * 1024


def main(arguments: Sequence[str]) -> None:
    """Do what the arguments say and print the figures."""
    match arguments:
        case ["find_pairs", source, distance, target]:
            print(json.dumps(_find_all(source, int(distance), target)))
        case ["program", *command]:
            print(json.dumps(_run_program(command)))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
