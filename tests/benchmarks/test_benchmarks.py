"""The benchmarks run, on a small table, and a wrong result ends them."""

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import oracle
import pytest
from citus import Citus
from program import temporary_folder

from benchmarks import bars, churn, cost, data, follow, load, mixture, pgbench, storages, upkeep
from benchmarks.__main__ import ALL, SECTIONS, WITHOUT_SERVER, measure
from benchmarks.figures import Figure, Report, format_value, read_report
from benchmarks.harness import Bench, Options, Run, Target
from benchmarks.oracle import Oracle, WrongResultError
from benchmarks.sections import citus as citus_section
from benchmarks.sections import memory, near
from benchmarks.server import run_server
from benchmarks.tables import markdown, section_table
from simsql.errors import SimsqlError
from simsql.hamming import Design
from simsql.server.binaries import bundled_programs

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def options() -> Iterator[Options]:
    """A run that takes seconds, in a folder that its server can reach."""
    try:
        bundled_programs()
    except SimsqlError as error:
        pytest.skip(str(error))
    # Not below tmp_path, which is for its owner only: as root, the server runs as another user.
    with temporary_folder() as folder:
        yield Options(
            rows=1_000,
            queries=20,
            batch=300,
            sample=5,
            budget=0.05,
            peers=False,
            folder=folder,
            results=folder / "results" / "run.json",
        )


def test_all_sections_run_and_every_bar_has_its_figure(
    options: Options, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SIMSQL_CITUS", raising=False)
    monkeypatch.setattr(memory, "_ROUNDS", 1)  # each is a process of its own
    assert measure(options, SECTIONS, WITHOUT_SERVER) == 0
    shown = capfd.readouterr().out
    report = read_report(options.results)
    assert report.wrong_result is None
    assert "not measured: citus: SIMSQL_CITUS does not name a folder with start-cluster.sh" in shown
    sections = set(ALL) - {citus_section.SECTION}
    assert {figure.section for figure in report.figures} == sections
    assert "fsync: on" in shown
    assert "shared_buffers" in report.environment["settings"]
    assert list(options.folder.glob("simsql-benchmarks-*")) == []
    # Sizes aside: this run is smaller.
    found = {(figure.section, without_numbers(figure.what), figure.system) for figure in report.figures}
    expected = {(bar.section, without_numbers(bar.what), bar.system) for bar in bars.BARS}
    assert expected <= found
    judged = [verdict for figure in report.figures for verdict in bars.verdicts(report, figure)]
    assert judged
    assert {verdict.word for verdict in judged} <= {"(yes)", "(no)"}  # it takes 10 million rows to meet them
    for section in sections:
        assert section_table(report, section) in shown
        assert f"### {section.capitalize()}" in markdown(report)


def without_numbers(what: str) -> str:
    return re.sub(r"all rows|\d[\d,]*\d|\d", "N", what)


def test_a_missing_key_ends_the_run(options: Options, capfd: pytest.CaptureFixture[str]) -> None:
    def lose_keys(bench: Bench) -> None:
        bench.use(bench.main)
        for keys in bench.key_tables(bench.main.table):
            bench.execute("DELETE FROM {} WHERE key % 2 = 0", keys)

    reached = []
    sections = {"sabotage": lose_keys, "near": near.run, "later": reached.append}
    assert measure(options, sections) == 1
    shown = capfd.readouterr()
    assert "WRONG RESULT: simsql: a search for " in shown.err
    assert "misses [(" in shown.err
    assert "bars" not in shown.out
    assert reached == []
    wrong_result = json.loads(options.results.read_text())["wrong_result"]
    assert wrong_result in shown.err
    assert list(options.folder.glob("simsql-benchmarks-*")) == []


def test_searches_on_a_citus_cluster_are_measured_and_compared(options: Options, citus: Citus) -> None:
    report = Report()
    values = data.make_fingerprints(options.rows, options.seed)
    target = Target("article", Oracle(values), data.make_queries(values, options.queries, options.seed))
    layouts = [citus_section.DISTRIBUTED[0], citus_section.DISTRIBUTED[-1]]
    with (
        citus.new_database() as url,
        contextlib.closing(citus.connect(str(url.database))) as connection,
        citus_section.open_bench(Run(options, report), url, connection, target) as bench,
    ):
        citus_section.measure(bench, layouts)
        found = {(figure.system, figure.unit) for figure in report.figures}
        assert found == {(layout.system, unit) for layout in layouts for unit in ("s", "bytes", "ms", "/s")}
        checked = [figure.checked for figure in report.figures if figure.unit == "ms"]
        assert checked == [2 * options.sample] * 6
        assert report.skipped == []
        citus_section.load(bench, layouts[0])
        citus_section.add_build(bench, layouts[0])
        bench.execute("DELETE FROM {}", target.table)
        with pytest.raises(WrongResultError, match="misses"):
            citus_section.add_searches(bench, layouts[0], 3)


def test_storages_are_measured_step_by_step(options: Options) -> None:
    cases = [
        *(case for case in storages.CASES if not case.partitions and case.fillfactor == 100),
        storages.Case("3 partitions", "expression", 3),
        storages.Case("3 scopes", "expression", 3, scoped=True),
    ]
    kept = replace(options, folder=options.folder / "kept", results=options.folder / "results")
    kept.results.mkdir()
    done = kept.results / "no_index-write.json"
    Report().write(done)
    assert storages.measure(kept, cases) == 0
    assert read_report(done).figures == []  # a step that has its file is not run again
    figures = {case.name: set[str]() for case in cases}
    for path in kept.results.iterdir():
        for figure in read_report(path).figures:
            figures[figure.section].add(figure.what)
            if figure.system.startswith("simsql, ") and "distance" in figure.what and figure.unit:
                assert figure.checked
    assert figures["tables"] == figures["expression"] > figures["3 partitions"] > figures["3 scopes"]
    assert "another column of every fifth row updated" in figures["no index"]


def test_costs_are_measured_and_searches_checked(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "_QUERIES", 5)
    monkeypatch.setattr(cost, "_ROUNDS", 3)
    values = data.make_fingerprints(options.rows, options.seed)
    cases = [*cost.CASES[:2], cost.Case(storage="tables", design=Design(2), changes=True)]
    settings = cost._SETTINGS | {"fsync": "off"}  # there are many checkpoints
    with run_server(options.folder, options.rows, 0, settings) as cluster:
        bare, plain, indexed = found = [cost.measure(cluster, case, values, options.seed) for case in cases]
        monkeypatch.setattr(cost, "Oracle", lambda values: Oracle(values[::2]))
        with pytest.raises(WrongResultError, match="finds"):
            cost.measure(cluster, cases[2], values, options.seed)
    log = [(costs.together.log, costs.after_checkpoint.log) for costs in found]
    assert 0 < log[0][0] < log[1][0] < log[2][0]
    assert all(pages > 2 * rows for rows, pages in log[1:])
    assert bare.column_bytes == plain.index_bytes == 0 < plain.column_bytes < indexed.index_bytes
    assert indexed.changed[0].log > plain.changed[0].log > 0
    assert indexed.built.processor > 0 < indexed.built.memory
    for searched in (indexed.searched, indexed.before_upkeep):
        assert all(searched[distance].blocks > 0 for distance in cost.DISTANCES)
    lines = [line for line in cost.tables(found, options.rows) if line.startswith("|")]
    assert sum("| 2 |" in line for line in lines) == 6
    assert all(line.count("|") == titles.count("|") for titles, line in pairwise(lines) if "---" in titles)


def test_a_month_is_measured_and_searches_checked(
    options: Options, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(churn, "_SETTINGS", churn._SETTINGS | {"fsync": "off"})  # there are many checkpoints
    churn.main(options.rows, 2, options.folder)
    shown = capsys.readouterr().out
    assert shown.count("; 2,000 searches equal brute force\n") == 4
    assert [line.count(" | ") for line in shown.splitlines() if re.match(r"\| \d", line)] == [8] * 12
    monkeypatch.setattr(churn, "Oracle", lambda values: Oracle(values[::2]))
    with pytest.raises(SystemExit, match="finds"):
        churn.main(options.rows, 1, options.folder)


def test_load_is_measured_and_the_index_followed(
    options: Options, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "CLIENTS": (1, 2),
        "_FEW": 1,
        "_MANY": 2,
        "_ROUNDS": 1,
        "_SLOWER": 99,
        "_DEARER": 99,
    }.items():
        monkeypatch.setattr(load, name, value)
    monkeypatch.setattr(upkeep.Course, "growth", lambda _: 1.0)  # it takes longer than this to find its size
    chart = options.folder / "load.svg"
    code = load.measure(options.rows, 0, 1, options.folder, chart, ["tables"])
    shown = capfd.readouterr()
    assert (code, shown.err.count("WRONG")) == (0, 0), shown.out + shown.err
    assert "all bars are met" in shown.out
    assert "200 searches afterwards equal brute force" in shown.out
    assert all(f"\n| {name} | " in shown.out for name in [*mixture.mixture("article"), *load._PARTS])
    assert {"tables", "tables, no upkeep"} <= set(re.findall(">([^<]+)</text>", chart.read_text()))
    assert list(options.folder.glob("simsql-benchmarks-*")) == []


def test_a_worker_is_measured(options: Options, capsys: pytest.CaptureFixture[str]) -> None:
    follow.main(rows=100, rate=500, kills=1, table=100, seed=options.seed)
    assert capsys.readouterr().out.count("; 0 lost, 0 wrong\n") == 2


def test_pgbench_knows_the_fingerprints_of_the_rows() -> None:
    # What hash_murmur2(id, 1) of pgbench 18 returns for 1 and 5.
    assert mixture.fingerprints_of(5, seed=1).view(np.int64)[[0, 4]].tolist() == [
        5833352340892006082,
        -498070536770548178,
    ]


def test_growth_without_a_bound_and_silence_are_problems() -> None:
    def course(sizes: list[int], hint: str | None, *, maintained: bool, is_large: bool = True) -> upkeep.Course:
        looks = [upkeep.Look(n, size, 0, None, 0.0, hint, is_large) for n, size in enumerate(sizes)]
        nothing = pgbench.Run([], np.array([]), np.array([]), np.array([]), 1, 0)
        return upkeep.Course("tables", maintained, looks, nothing, [])

    bounded, growing = [1, 50, 100, 100, 104, 108, 110], [10, 20, 30, 40, 50, 60, 70]
    for sizes, hint, maintained, is_large, expected in [
        (bounded, None, True, True, None),
        (growing, None, True, True, "it still grew, to 1.75 times its size"),
        (bounded, "vacuum", True, True, "after its maintenance the index still says: vacuum"),
        (growing, "vacuum", False, True, None),
        (growing, None, False, True, "the index does not say that it needs a vacuum"),
        (growing, None, False, False, None),
    ]:
        problems = course(sizes, hint, maintained=maintained, is_large=is_large).problems()
        assert [problem.partition(": ")[2] for problem in problems] == ([expected] if expected else [])


def test_slow_clients_and_claims_are_problems() -> None:
    def run(rate: float) -> pgbench.Run:
        return pgbench.Run([], np.array([]), np.array([]), np.zeros(round(rate)), 1, 0)

    measured = load.Load("tables", {8: run(200), 64: run(100)})
    measured.parts = {(durable, name): [run(100)] for durable in (True, False) for name in load._PARTS}
    assert measured.problems() == []
    measured.mixed[64] = run(90)
    measured.parts[False, mixture.TOGETHER] = [run(40), run(45)]
    assert measured.problems() == [
        "tables: 64 clients are 2.2 times slower than 8",
        "tables: a claim and an insert in one statement take 2.2 times as long as the slower of them",
    ]


def test_a_killed_run_leaves_nothing_behind(options: Options) -> None:
    command = [sys.executable, "-m", "benchmarks", "--rows", "2000", "--no-peers"]
    command += ["--folder", str(options.folder), "--results", str(options.results), "--only", "near"]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
        assert run.stdout is not None
        assert any(line.startswith(b"PostgreSQL") for line in run.stdout)  # the server answers
        assert list(options.folder.glob("simsql-benchmarks-*/data/postmaster.pid"))
        run.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while list(options.folder.glob("simsql-benchmarks-*")):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_oracle_is_right() -> None:
    values = np.unique(np.array(oracle.clustered(300, seed=1), dtype=np.int64)).view(np.uint64)
    checked = Oracle(values)
    stored = values.view(np.int64).tolist()
    for query in values[::10].tolist():
        for distance in (0, 3, 7, 10):
            found = [
                (number % 2**64, bits) for number, bits in oracle.near(stored, oracle.to_bigint(query), distance)
            ]
            assert checked.near(query, distance) == found
            checked.check_near("it", query, distance, found)
            checked.check_members("it", query, distance, [fingerprint for fingerprint, _ in reversed(found)])
            wrong = [found[1:], [*found, found[-1]], [*found, (query ^ (2**20 - 1), 20)]]
            for answer in wrong + ([found[::-1]] if len(found) > 1 else []):
                with pytest.raises(WrongResultError):
                    checked.check_near("it", query, distance, answer)
    pairs = np.array([pair[:2] for pair in oracle.pairs(stored, 3)], dtype=np.int64).view(np.uint64)
    assert checked.check_pairs("it", 3, pairs, 400) > 100
    for answer in (
        pairs[1:],
        np.concatenate([pairs, pairs[:1, ::-1]]),
        np.concatenate([pairs, pairs[:1] ^ 2**20 - 1]),
    ):
        with pytest.raises(WrongResultError):
            checked.check_pairs("it", 3, answer.astype(np.uint64), 400)


def test_data_come_from_the_seed() -> None:
    values = data.make_fingerprints(5_000, seed=1)
    assert values.size == np.unique(values).size == 5_000
    np.testing.assert_array_equal(values, data.make_fingerprints(5_000, seed=1))
    assert not np.array_equal(values, data.make_fingerprints(5_000, seed=2))
    queries = data.make_queries(values, 1_000, seed=1)
    brute_force = Oracle(values)
    for kind in data.KINDS:
        asked = queries.of(kind)
        assert asked.size == np.unique(asked).size == 1_000
        for query in asked[:100].tolist():
            nearest = min((bits for _, bits in brute_force.near(query, 10)), default=64)
            assert {"stored": nearest == 0, "neighbours": nearest <= 3, "random": nearest > 3}[kind]
    # Planted neighbours: 100 pairs or a few less, where one was chosen twice.
    assert 80 < sum(len(brute_force.near(int(value), 3)) > 1 for value in values[::10]) * 10 < 320


def test_verdicts() -> None:
    def verdict(bar: bars.Bar, *figures: Figure) -> bars.Verdict | None:
        report = Report(figures=list(figures))
        return bar.judge(report, figures[0])

    def figure(value: float, system: str = "simsql", rows: int = bars.MEANT_FOR) -> Figure:
        return Figure("near", "distance 3, stored", system, rows, value, "ms")

    limit = bars.Bar("near", "distance 3, stored", "simsql", 0.12)
    assert [verdict(limit, figure(value)).word for value in (0.12, 0.13)] == ["yes", "no"]  # type: ignore[union-attr]
    assert verdict(limit, figure(0.1, rows=1_000_000)).word == "(yes)"  # type: ignore[union-attr]
    assert verdict(limit, figure(0.1, "faiss")) is None
    ratio = bars.Bar("near", "distance 3, stored", "simsql", 40, than=("faiss", "scan"))
    assert verdict(ratio, figure(1)) is None
    # The fastest of the others counts.
    assert verdict(ratio, figure(1), figure(50, "faiss")).word == "yes"  # type: ignore[union-attr]
    assert verdict(ratio, figure(1), figure(50, "faiss"), figure(39, "scan")).word == "no"  # type: ignore[union-attr]
    rate = bars.Bar("fingerprint", "English", "simsql", 1.2, than=("gaoya", "other"), rows=100)
    figures = [
        Figure("fingerprint", "English", system, 100, value, "MB/s")
        for system, value in (("simsql", 12), ("gaoya", 10), ("other", 5))
    ]
    found = rate.judge(Report(figures=figures), figures[0])
    assert (found.word, found.measured) == ("yes", "1.2 x")  # type: ignore[union-attr]
    figures[1] = Figure("fingerprint", "English", "gaoya", 100, 10.1, "MB/s")
    assert rate.judge(Report(figures=figures), figures[0]).word == "no"  # type: ignore[union-attr]
    assert [format_value(*value) for value in ((0.0571, "ms"), (12.34, "s"), (123456789, "bytes"), (0, ""))] == [
        "0.0571 ms",
        "12.3 s",
        "123 MB",
        "0",
    ]
