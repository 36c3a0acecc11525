"""Memory over time on the simulated device: what each activity leaves behind, and failures on the way."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pilot_workloads import line_of, write_workload
from soaked import ARRAY_BYTES, FEW_REPLAYS, OWN, Soaked

from cudagraph_gate.device import DeviceChoice
from cudagraph_gate.evidence import create_run
from cudagraph_gate.gates.memory import Course, judge_series, memory_checks
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.gates.trial_view import ShapeTrial
from cudagraph_gate.graphs import GraphedStep, State
from cudagraph_gate.model import GateStatus, NotMeasured, Reason
from cudagraph_gate.pilot.graph_path import ready_graph
from cudagraph_gate.pilot.jobs import RungJob
from cudagraph_gate.pilot.memory import memory_now, settled_memory
from cudagraph_gate.pilot.session import Inputs, Session, build, load
from cudagraph_gate.pilot.soaking import CYCLES, REPLAYS
from cudagraph_gate.pilot.worker import run_worker
from cudagraph_gate.records import MemorySeries, NormalPathProbe, Phase, PhaseStarted

KEEPS = """
kept = []

def step(x):
    if device.current_stream().is_capturing:
        kept.append(x)
    device.copy(work, x)
    add(work, 1)
    return work
"""


@pytest.fixture(autouse=True)
def _import_path_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))  # loading a workload adds its folder


@pytest.fixture
def session(tmp_path: Path) -> Session:
    built, _inputs = build(load(str(write_workload(tmp_path)), "simulated", None), "default", 1)
    return built


# --- readings ---------------------------------------------------------------------------------------


def test_a_reading_holds_what_the_device_gave_out(session: Session) -> None:
    before = memory_now(session)
    kept = session.device.empty((1_000_000,), "u1")
    after = memory_now(session)
    assert after.device_used_bytes - before.device_used_bytes == 1_000_192  # in units of 256
    assert after.allocator_bytes == NotMeasured(reason="the device port has no caching allocator")
    kept.free()


def test_a_reading_holds_the_resident_host_memory(session: Session) -> None:
    before = memory_now(session).host_rss_bytes
    kept = bytearray(b"x") * (64 << 20)
    after = memory_now(session).host_rss_bytes
    assert isinstance(before, int)
    assert isinstance(after, int)
    assert 60 << 20 < after - before < 80 << 20
    del kept


def test_a_settled_reading_does_not_hold_garbage(session: Session) -> None:
    before = settled_memory(session).device_used_bytes
    cycle: list[Any] = [session.device.empty((1_000_000,), "u1")]
    cycle.append(cycle)
    del cycle
    assert settled_memory(session).device_used_bytes == before


# --- a healthy step -----------------------------------------------------------------------------------


def test_a_healthy_step_leaves_nothing_behind(tmp_path: Path) -> None:
    soaked = Soaked(tmp_path)
    assert soaked.trial.of(PhaseStarted) == (PhaseStarted(shape="default", phase=Phase.MEMORY),)
    assert list(soaked.series) == ["replays", "cycles", "aborted"]
    for activity in soaked.series:
        assert soaked.course(activity) == (Course.FLAT, 0.0)
    assert soaked.series["replays"].counts == tuple(range(0, 51, 5))
    assert soaked.series["cycles"].counts == soaked.series["aborted"].counts == tuple(range(13))
    assert soaked.trial.probe == NormalPathProbe(shape="default", intact=True, detail="")
    checks = memory_checks(soaked.trial, Policy(), required=True)
    assert [check.status for check in checks] == [GateStatus.PASS] * 3


def test_points_are_enough_for_a_judgement_and_go_on_while_memory_moves() -> None:
    for plan in (REPLAYS, CYCLES):
        assert plan.points // 2 + 1 >= 6
        assert plan.most_points >= 3 * plan.points


# --- leaks --------------------------------------------------------------------------------------------


def test_a_step_that_keeps_a_reference_for_each_capture_leaks_per_cycle(tmp_path: Path) -> None:
    soaked = Soaked(tmp_path, KEEPS)
    assert soaked.course("replays") == (Course.FLAT, 0.0)
    assert soaked.course("cycles") == (Course.LEAK, ARRAY_BYTES)
    assert soaked.course("aborted") == (Course.LEAK, ARRAY_BYTES)
    assert soaked.series["cycles"].counts == tuple(range(15)), "it goes on to the most points"
    failed = [check for check in memory_checks(soaked.trial, Policy()) if check.status is GateStatus.FAIL]
    assert [check.code for check in failed] == [Reason.MEMORY_GROWTH] * 2
    assert failed[0].sentence == "device memory grows by 256 B per capture cycle over 14 capture cycles"


def test_a_step_that_keeps_a_few_captures_fills_a_plateau(tmp_path: Path) -> None:
    soaked = Soaked(tmp_path, KEEPS.replace("is_capturing:", "is_capturing and len(kept) < 4:"))
    device = soaked.series["cycles"].device_used_bytes
    assert soaked.course("cycles") == (Course.PLATEAU, 0.0)
    assert device[-1] - device[0] == 3 * ARRAY_BYTES  # the capture before the first reading is kept, too


def test_an_own_path_that_keeps_memory_leaks_per_replay(tmp_path: Path) -> None:
    soaked = Soaked(tmp_path, OWN.format(act="kept.append(array())"), method="own")
    assert list(soaked.series) == ["replays"], "when it makes graphs is its own affair"
    assert soaked.series["replays"].method == "own"
    assert soaked.course("replays") == (Course.LEAK, ARRAY_BYTES)
    (check,) = memory_checks(soaked.trial, Policy(), required=True)
    assert check.code is Reason.MEMORY_GROWTH


def test_an_own_path_that_keeps_nothing_holds(tmp_path: Path) -> None:
    soaked = Soaked(tmp_path, OWN.format(act="array()"), method="own")
    assert soaked.course("replays") == (Course.FLAT, 0.0)
    (check,) = memory_checks(soaked.trial, Policy(), required=True)
    assert check.status is GateStatus.PASS


def test_an_explicit_graph_is_not_tried(tmp_path: Path) -> None:
    soaked = Soaked(tmp_path, method="explicit")
    assert (soaked.finding.code, soaked.series) == (Reason.NOT_TRIED, {})
    assert {check.status for check in memory_checks(soaked.trial, Policy(), required=True)} == {
        GateStatus.UNKNOWN
    }


def test_another_maker_of_paths_takes_the_place_of_the_usual_one(tmp_path: Path) -> None:
    made: list[GraphedStep] = []

    def maker(session: Session, inputs: Inputs) -> GraphedStep:
        made.append(ready_graph(session, inputs))
        return made[0]

    soaked = Soaked(tmp_path, make_path=maker)
    assert soaked.course("replays") == (Course.FLAT, 0.0)
    assert [path.state for path in made] == [State.FALLBACK], "it is given up at the end"


# --- time ---------------------------------------------------------------------------------------------


def test_when_the_time_is_over_the_readings_so_far_are_kept(tmp_path: Path) -> None:
    soaked = Soaked(tmp_path, replays=replace(FEW_REPLAYS, limit_s=0.0))
    assert soaked.series["replays"].counts[0] == 0
    assert len(soaked.series["replays"].counts) <= 2
    checks = memory_checks(soaked.trial, Policy(), required=True)
    assert [check.status for check in checks].count(GateStatus.UNKNOWN) == 1


def test_slow_replays_are_read_more_often(tmp_path: Path) -> None:
    soaked = Soaked(tmp_path, replays=replace(FEW_REPLAYS, most_per_point=1_000, point_s=0.0))
    assert soaked.series["replays"].counts == tuple(range(11))


# --- failures -----------------------------------------------------------------------------------------


def test_a_capture_that_is_refused_is_a_finding(tmp_path: Path) -> None:
    soaked = Soaked(
        tmp_path,
        """
        def step(x):
            device.copy(work, x)
            device.synchronize()
            return work
        """,
    )
    assert (soaked.error, soaked.series) == (None, {})
    assert (soaked.finding.phase, soaked.finding.code) == (Phase.MEMORY, Reason.CAPTURE_ILLEGAL)
    assert soaked.finding.where == f"model.py:{line_of(soaked.path, 'device.synchronize()')}"


def test_memory_that_runs_out_on_the_way_keeps_the_readings_before_it(tmp_path: Path) -> None:
    soaked = Soaked(
        tmp_path,
        """
        captures = []

        def step(x):
            if device.current_stream().is_capturing:
                captures.append(1)
                if len(captures) == 5:
                    device.inject(Fault("out_of_memory"))
            device.copy(work, x)
            return work
        """,
    )
    assert (soaked.finding.code, soaked.finding.call) == (Reason.MEMORY, "cuGraphInstantiate")
    assert soaked.series["cycles"].counts == (0, 1, 2, 3)  # one capture for the replays
    assert "aborted" not in soaked.series


def test_a_failing_request_of_an_own_path_is_a_finding_with_its_line(tmp_path: Path) -> None:
    act = "kept.append(1)\n        if len(kept) > 20: raise RuntimeError('queue is full')"
    soaked = Soaked(tmp_path, OWN.format(act=act), method="own")
    assert (soaked.error, soaked.finding.code, soaked.finding.method) == (None, Reason.WORKLOAD, "own")
    assert soaked.finding.message == "RuntimeError: queue is full"
    assert soaked.finding.where == f"model.py:{line_of(soaked.path, 'queue is full')}"
    assert soaked.series["replays"].counts == (0, 5)  # 10 to warm up, 3 timed, 5, then the eighth fails


def test_a_normal_path_that_aborted_captures_break_is_a_finding(tmp_path: Path) -> None:
    soaked = Soaked(
        tmp_path,
        """
        captures = []

        def step(x):
            captures.extend([1] * device.current_stream().is_capturing)
            if len(captures) > 20 and not device.current_stream().is_capturing:
                raise RuntimeError("the generator is still capturing")
            device.copy(work, x)
            return work
        """,
    )
    assert soaked.error is None
    assert soaked.finding.code is Reason.CAPTURE_ILLEGAL
    assert soaked.finding.message.startswith("after 12 captures that were aborted, the normal path fails: ")
    assert "the generator is still capturing" in soaked.finding.message
    assert soaked.trial.probe is not None
    assert not soaked.trial.probe.intact


def test_a_normal_path_that_computes_something_else_afterwards_is_a_finding(tmp_path: Path) -> None:
    soaked = Soaked(
        tmp_path,
        """
        captures = []

        def step(x):
            captures.extend([1] * device.current_stream().is_capturing)
            device.copy(work, x)
            add(work, 1 if len(captures) < 20 else 2)
            return work
        """,
    )
    assert soaked.finding.code is Reason.WRONG_OUTPUT
    assert soaked.finding.message == (
        "after 12 captures that were aborted, the normal path differs from before: output output"
    )
    assert soaked.trial.probe == NormalPathProbe(shape="default", intact=False, detail="output output")


def test_a_workload_that_fails_itself_is_its_own_fault(tmp_path: Path) -> None:
    soaked = Soaked(tmp_path, "def build(shape):\n    raise ValueError('no weights')\n")
    assert soaked.error is not None
    assert (soaked.finding.code, soaked.finding.phase) == (Reason.WORKLOAD, Phase.MEMORY)
    assert "no weights" in soaked.finding.message


# --- in a worker --------------------------------------------------------------------------------------


def soaked_in_worker(folder: Path, path: Path, device: DeviceChoice) -> dict[str, MemorySeries]:
    """The series that a worker process of its own logs; it must end well and find nothing."""
    run = create_run(str(path), "module", device, root=folder / "runs")
    job = RungJob(
        kind="memory", folder=str(run.folder), workload=str(path), device=device, shapes=None, shape="default"
    )
    result = run_worker(job, stage="pilot", workload=path)
    assert (result.end.outcome, result.end.reason) == ("finished", "")
    trial = ShapeTrial("default", run.records())
    assert trial.findings == ()
    return {series.activity: series for series in trial.of(MemorySeries)}


def test_a_worker_soaks_as_long_as_usual(tmp_path: Path) -> None:
    found = soaked_in_worker(tmp_path, write_workload(tmp_path), "simulated")
    assert {judge_series(series).course for series in found.values()} == {Course.FLAT}
    assert [len(series.counts) - 1 for series in found.values()] == [10, 16, 16]


TORCH = """
import torch
kept = []
layers = [torch.nn.Linear(512, 512, device="cuda") for _ in range(8)]

def build(shape):
    @torch.no_grad()
    def step(x):
        for layer in layers:
            x = torch.relu(layer(x))
        if {keeps} and torch.cuda.is_current_stream_capturing():
            kept.append(x.repeat(64, 32))  # 8 MiB, more than a block of torch's allocator
        return x
    return step

def inputs(shape, seed):
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(64, 512, device="cuda", generator=generator)
"""


@pytest.mark.gpu
@pytest.mark.parametrize("keeps", [False, True])
def test_on_a_gpu_only_what_a_step_keeps_of_each_capture_leaks(tmp_path: Path, keeps: bool) -> None:
    path = tmp_path / "mlp.py"
    path.write_text(TORCH.format(keeps=keeps))
    found = soaked_in_worker(tmp_path, path, "cuda")
    growths = {activity: judge_series(series) for activity, series in found.items()}
    leaking = {activity for activity, growth in growths.items() if growth.course is Course.LEAK}
    assert leaking == ({"cycles", "aborted"} if keeps else set()), growths
    assert growths["replays"].course in (Course.FLAT, Course.PLATEAU), growths
