"""Work that is shared between processes."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from simsql import processes
from simsql.errors import SimsqlError
from simsql.processes import map_in_processes, run_tasks

# Work that every process can import: `eval` yields the elements of the task's value.
HERE = f"__import__('os').getpid() == {os.getpid()}"


@pytest.fixture
def started(monkeypatch):
    """The processes that are started."""
    found = []

    def popen(*arguments, **options):
        found.append(subprocess.Popen(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(processes, "subprocess", type("", (), {"Popen": popen, "DEVNULL": subprocess.DEVNULL}))
    yield found
    assert all(process.poll() is not None for process in found)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_every_task_is_done_once(started, workers):
    tasks = list(range(200))
    assert sorted(run_tasks(range, tasks, workers)) == sorted(number for task in tasks for number in range(task))
    assert len(started) == workers - 1


def test_other_processes_do_tasks(started):
    found = list(run_tasks(eval, ["[__import__('time').sleep(.05) or __import__('os').getpid()]"] * 40, 2))
    assert len(found) == 40
    assert set(found) == {os.getpid(), started[0].pid}


def test_results_are_read_before_more_are_computed(started):
    """The other process waits with its first results: they do not fit the buffer."""
    sizes = "(bytes(10**6) for _ in range(50))"
    assert sum(len(some) for some in run_tasks(eval, [sizes] * 8, 2)) == 400 * 10**6


def test_no_process_is_left_after_the_first_result(started):
    results = run_tasks(eval, ["iter(int, 1)"] * 3, 3)
    assert next(results) == 0
    results.close()


def test_a_process_that_ends_is_an_error(started):
    task = f"[__import__('time').sleep(.05)] * 0 if {HERE} else __import__('os')._exit(3)"
    with pytest.raises(SimsqlError, match="ended with exit code 3: try again with workers=1"):
        list(run_tasks(eval, [task] * 200, 2))


@pytest.mark.parametrize("program", ["/bin/false", "/no/such/program"])
def test_work_is_done_without_processes_that_do_not_start(monkeypatch, program):
    monkeypatch.setattr(sys, "executable", program)
    assert list(run_tasks(eval, ["[__import__('time').sleep(.05)] and [7]"] * 5, 3)) == [7] * 5


SCRIPT = """
    import numpy as np, simsql
    print("begins")
    values = np.random.default_rng(1).integers(0, 2**64, {count}, dtype=np.uint64)
    print(len(simsql.find_pairs(values, {distance}, workers=2)))
"""


def run_script(count, distance):
    script = textwrap.dedent(SCRIPT.format(count=count, distance=distance))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-u", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        process_group=0,
    )


def test_a_script_needs_no_main_module():
    out, error = run_script(50_000, 9).communicate(timeout=60)
    assert (out.split("\n")[:1], error) == (["begins"], "")
    assert out.count("\n") == 2


def test_an_interrupt_ends_all_processes_with_one_message():
    script = run_script(2_000_000, 12)
    assert script.stdout.readline() == "begins\n"
    time.sleep(1)
    os.killpg(script.pid, 2)
    _, error = script.communicate(timeout=30)  # also waits for other processes, which hold the same pipes
    assert error.count("Traceback") == 1
    assert error.rstrip().endswith("KeyboardInterrupt")


def test_processes_end_in_the_middle_of_a_batch(started):
    batches = iter(["1", *[f"{HERE} or __import__('time').sleep(3600)"] * 20])
    results = map_in_processes(eval, batches, 3, lambda _: 1)
    assert next(results) == 1
    assert len(started) == 2
    results.close()


KILLED = "__import__('os').kill(__import__('os').getpid(), 9)"
# It announces 256 bytes and sends two.
SENDING = (
    r"[__import__('os').write(each.fileno(), b'\0\0\1\0xx') for each in __import__('gc').get_objects()"
    f" if type(each).__name__ == 'Connection'] and {KILLED}"
)


@pytest.mark.parametrize("end", [KILLED, SENDING])
@pytest.mark.usefixtures("started")
def test_a_process_that_is_killed_is_named(end):
    batches = iter([f"{HERE} or {end}"] * 20)
    with pytest.raises(SimsqlError, match="a worker process was killed"):
        # So that it has no other batch to read: else the system tells the end in another way.
        list(map_in_processes(eval, batches, 2, lambda _: 2))


LONG_WORK = """
import os, pathlib, simsql

def texts():
    for number in range(1_000_000):
        if number == 80:
            print(pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text(), flush=True)
        yield f"some words {number} " * 10_000

simsql.simhash_many(texts(), workers=2)
"""


def lives(pid):
    """Whether a process runs; one that nobody has reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
def test_processes_end_when_their_parent_is_killed(tmp_path):
    script = tmp_path / "work.py"
    script.write_text(LONG_WORK)
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        pids = process.stdout.readline().split()
        process.kill()
    assert pids
    end = time.monotonic() + 30
    while any(map(lives, pids)) and time.monotonic() < end:
        time.sleep(0.01)
    assert not any(map(lives, pids))
