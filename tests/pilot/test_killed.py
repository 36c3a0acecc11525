"""A run that is killed at any point is judged as far as it got: no exception, no GO, the phase named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pilot_workloads import KILLABLE, options, write_workload

from cudagraph_gate import pipeline
from cudagraph_gate.errors import WorkloadError
from cudagraph_gate.evidence import PILOT_LOG, VERDICT_FILE, Run, newest_run
from cudagraph_gate.gates import Policy
from cudagraph_gate.gates.trial_view import view_trial
from cudagraph_gate.model import Decision, GateStatus, Verdict
from cudagraph_gate.records import (
    RUNG_PHASES,
    Block,
    ConcurrentRun,
    Phase,
    PhaseStarted,
    RungEnded,
    ShapeEnded,
    TrafficRun,
    WholeRequests,
    WorkerEnd,
)


@pytest.fixture
def whole(rehearsed: Run) -> Run:
    """A whole run of a workload that kills itself when it is told to."""
    return rehearsed


def copied(run: Run, folder: Path, log: bytes | None) -> Run:
    """The run as it was when its log held ``log``, and nothing later was written."""
    shutil.copytree(run.folder, folder / run.name)
    copy = Run(folder / run.name)
    (copy.folder / VERDICT_FILE).unlink()
    copy.pilot_log_path.unlink()
    if log is not None:
        copy.pilot_log_path.write_bytes(log)
    return copy


def judged(run: Run) -> Verdict:
    """The verdict, which must not speak for the graph; no rehearsal where the device is not known."""
    verdict = pipeline.verdict(run, Policy())
    assert verdict.stale == ()
    assert verdict.verdict is Decision.INCONCLUSIVE
    assert verdict.rehearsal in (None, Decision.INCONCLUSIVE, Decision.NO_GO)
    assert verdict.gates[5].status is GateStatus.UNKNOWN
    return verdict


IN_THE_TRIAL = [phase for phase in Phase if phase not in (*RUNG_PHASES, Phase.SCENARIO)]
"""Phases of the worker that tries the shape."""

# --- killed for real --------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", IN_THE_TRIAL)
def test_killed_in_a_phase(whole: Run, tmp_path: Path, phase: Phase, monkeypatch: pytest.MonkeyPatch) -> None:
    run = copied(whole, tmp_path, None)
    monkeypatch.setenv("KILL_PHASE", phase)
    pipeline.pilot(run, options(tmp_path))
    trial = view_trial(pipeline.collect_evidence(run)).shapes["default"]
    assert trial.end is not None
    assert (trial.last_phase, trial.end.outcome, trial.end.signal) == (phase, "killed", "SIGKILL")
    assert not trial.completed
    reason = judged(run).gates[5].reason
    assert f"the trial of shape default ended in phase {phase}: its worker killed (SIGKILL" in reason


@pytest.mark.parametrize(
    ("killed_in", "climbed"),
    [
        ([Phase.MEMORY, Phase.INSTANCES], [1, 2, 3, 4]),  # memory is no rung: the next one is tried
        ([Phase.CONCURRENCY], [1, 2, 3, 4, 5]),
        ([Phase.TRAFFIC], [1, 2, 3, 4, 5, 6]),
    ],
    ids=["memory-and-instances", "concurrency", "traffic"],
)
def test_killed_in_the_phase_of_a_rung(
    whole: Run, tmp_path: Path, killed_in: list[Phase], climbed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = copied(whole, tmp_path, None)
    monkeypatch.setenv("KILL_PHASE", " ".join(killed_in))
    pipeline.pilot(run, options(tmp_path, rungs=6))
    view = view_trial(pipeline.collect_evidence(run))
    ends = {phase: trial.end for phase, trial in view.rungs.items()}
    killed = [phase for phase, end in ends.items() if end is not None and end.outcome == "killed"]
    assert (killed, list(ends)[-1]) == (killed_in, killed_in[-1])
    assert view.shapes["default"].completed
    assert [(rung.number, rung.status) for rung in view.ended] == [
        (number, GateStatus.UNKNOWN if number == climbed[-1] else GateStatus.PASS) for number in climbed
    ]
    reason = judged(run).gates[5].reason
    for phase in killed_in:
        assert f"ended in phase {phase}: its worker killed (SIGKILL" in reason


@pytest.mark.parametrize("artefact", ["profile.json", "timeline.parquet", "fingerprint.json"])
def test_killed_while_an_artefact_of_the_profile_is_written(
    tmp_path: Path, artefact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KILL_BEFORE", artefact)
    with pytest.raises(WorkloadError, match="the worker killed during profile: SIGKILL"):
        pipeline.profile(write_workload(tmp_path, KILLABLE), (), options(tmp_path))
    run = newest_run(tmp_path / "runs")
    assert not (run.folder / artefact).exists()
    assert len(run.records()) == 1
    verdict = judged(run)
    assert "killed (SIGKILL" in verdict.gates[5].reason
    assert verdict.gates[0].status is GateStatus.UNKNOWN


# --- cut off at every line --------------------------------------------------------------------------


def cuts(run: Run) -> list[int]:
    """Numbers of lines after which the log is cut: all, but of the many blocks in between a few only."""
    records = run.records()
    skipped: set[int] = set()
    for kind in (Block, WholeRequests, ConcurrentRun, TrafficRun):
        blocks = [number for number, record in enumerate(records, 1) if isinstance(record, kind)]
        skipped |= {number for number in blocks[4:-2] if number % 10}
    return [number for number in range(len(records)) if number not in skipped]


def test_a_log_that_ends_after_any_record_is_judged(whole: Run, tmp_path: Path) -> None:
    lines = whole.pilot_log_path.read_bytes().splitlines(keepends=True)
    records = whole.records()
    for number in cuts(whole):
        kept = records[:number]
        if any(isinstance(record, ShapeEnded) for record in kept):
            continue
        run = copied(whole, tmp_path / f"after{number}", b"".join(lines[:number]))
        reason = judged(run).gates[5].reason
        phases = [record.phase for record in kept if isinstance(record, PhaseStarted)]
        assert (f"ended in phase {phases[-1]}" if phases else "was not tried") in reason


def test_a_log_that_ends_before_the_last_rung_did_never_passes(whole: Run, tmp_path: Path) -> None:
    lines = whole.pilot_log_path.read_bytes().splitlines(keepends=True)
    records = whole.records()
    ended = next(number for number, record in enumerate(records) if isinstance(record, ShapeEnded))
    last = max(number for number, record in enumerate(records) if isinstance(record, WorkerEnd))
    for number in [number for number in cuts(whole) if ended < number <= last]:
        judged(copied(whole, tmp_path / f"after{number}", b"".join(lines[:number])))


def test_a_torn_last_line_counts_as_not_written(whole: Run, tmp_path: Path) -> None:
    lines = whole.pilot_log_path.read_bytes().splitlines(keepends=True)
    for number in [number for number in cuts(whole) if number % 5 == 0]:
        torn = lines[number][: len(lines[number]) // 2]
        run = copied(whole, tmp_path / f"torn{number}", b"".join(lines[:number]) + torn)
        assert run.records() == whole.records()[:number]
        if not isinstance(whole.records()[number], RungEnded):
            judged(run)


def test_rungs_whose_ends_were_not_written_are_judged_all_the_same(whole: Run, tmp_path: Path) -> None:
    lines = whole.pilot_log_path.read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if b'"record":"rung"' not in line]
    assert len(lines) - len(kept) == 6
    run = copied(whole, tmp_path, b"".join(kept))
    assert pipeline.verdict(run, Policy()).gates[5].status is GateStatus.PASS


def test_a_later_trial_goes_on_behind_a_torn_line(whole: Run, tmp_path: Path) -> None:
    log = (whole.folder / PILOT_LOG).read_bytes()
    run = copied(whole, tmp_path, log[: len(log) // 2])
    pipeline.pilot(run, options(tmp_path))
    view = view_trial(pipeline.collect_evidence(run))
    assert view.shapes["default"].completed
    assert [(rung.number, rung.status) for rung in view.ended] == [(1, GateStatus.PASS), (2, GateStatus.PASS)]
