"""Tasks that are shared between processes."""

import os
import subprocess
import sys
import textwrap
import time

import pytest

from simsql.errors import SimsqlError
from simsql.hamming import _processes
from simsql.hamming._processes import run_tasks

# Work that every process can import: `eval` yields the elements of the task's value.
HERE = f"__import__('os').getpid() == {os.getpid()}"


@pytest.fixture
def started(monkeypatch):
    """The processes that are started."""
    processes = []

    def popen(*arguments, **options):
        processes.append(subprocess.Popen(*arguments, **options))
        return processes[-1]

    monkeypatch.setattr(_processes, "subprocess", type("", (), {"Popen": popen, "DEVNULL": subprocess.DEVNULL}))
    yield processes
    assert all(process.poll() is not None for process in processes)


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
