"""The mix under load, exact on the simulated device without jitter."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cudagraph_gate.device import Device
from cudagraph_gate.device.simulated import Fault, SimulatedDevice, SimulatedSpec
from cudagraph_gate.errors import WorkloadError
from cudagraph_gate.evidence import Run, create_run
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.gates.traffic import PathLoad, traffic_check, view_traffic
from cudagraph_gate.graphs.graphed_step import GraphedStep, State
from cudagraph_gate.model import GateStatus, NotMeasured, Reason
from cudagraph_gate.pilot import traffic
from cudagraph_gate.pilot.arrivals import Arrivals
from cudagraph_gate.pilot.graph_path import ready_graph
from cudagraph_gate.pilot.jobs import RungJob
from cudagraph_gate.pilot.session import Inputs, Loaded, Session
from cudagraph_gate.pilot.trial_log import TrialLog
from cudagraph_gate.records import Finding, Phase, PhaseStarted, Record, TrafficRun
from cudagraph_gate.workload import load_workload
from cudagraph_gate.workload.shapes import mix_of

CHAIN = """\
import numpy as np
from cudagraph_gate.device import Kernel, LaunchShape

N = 16
LAUNCH = LaunchShape((1, 1, 1), (N, 1, 1))
SHAPES = {"s": 2, "m": 4, "l": 8}
device = None  # set by the test

def _add(shape, x, y):
    x[:] += y

ADD = Kernel("add", "", _add, 2_000)

def build(length):
    work = device.array(np.zeros(N, np.float32))
    def step(x):
        device.copy(work, x)
        for k in range(length):
            device.launch(ADD, LAUNCH, (work, np.float32(k)))
        return work
    return step

def inputs(length, seed):
    return (device.array(np.random.default_rng(seed).random(N, dtype=np.float32)),)

"""
TRAFFIC = "TRAFFIC = 'mix.csv'\n"
MIX = "arrival_s,shape\n0,s\n0.00002,m\n0.0002,l\n0.0003,s\n"


class Quiet:
    def progress(self, text: str, phase: str = "", done: int = 0, total: int = 0) -> None: ...


@pytest.fixture
def device() -> Iterator[SimulatedDevice]:
    opened = SimulatedDevice(SimulatedSpec(jitter=0))
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def _import_path_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))  # loading a workload adds its folder


def loaded(device: SimulatedDevice, folder: Path, text: str = "") -> Loaded:
    path = folder / "chain.py"
    path.write_text(CHAIN + text)
    (folder / "mix.csv").write_text(MIX)
    workload = load_workload(path)
    vars(workload.module)["device"] = device
    return Loaded(workload, device, workload.shapes)


def try_mix(
    device: SimulatedDevice, folder: Path, text: str = "", captured: tuple[str, ...] = ("s", "m", "l")
) -> tuple[Record, ...]:
    """The records of the rung; a WorkloadError passes."""
    run = create_run("chain.py", "module", "simulated", root=folder / "runs")
    traffic.try_traffic(loaded(device, folder, text), TrialLog(run, "s", Quiet()), job(run, captured))
    return run.records()


def job(run: Run, captured: tuple[str, ...]) -> RungJob:
    return RungJob(
        kind="traffic",
        folder=str(run.folder),
        workload="chain.py",
        device="simulated",
        shapes=None,
        shape="s",
        captured=captured,
        seed=7,
    )


def runs(records: tuple[Record, ...]) -> list[TrafficRun]:
    return [record for record in records if isinstance(record, TrafficRun)]


# --- serving --------------------------------------------------------------------------------------


def servers(device: SimulatedDevice, folder: Path, *names: str) -> list[traffic.Server]:
    prepared = loaded(device, folder)
    made = [traffic.Server.of(prepared, name, 0) for name in names]
    for server in made:
        server.path = ready_graph(server.session, server.input_sets[0])
    return made


def normal_ns(spec: SimulatedSpec, length: int) -> int:
    """A copy and ``length`` launches, each call longer than its kernel; then the last kernel."""
    return spec.copy_call_ns + length * spec.launch_call_ns + spec.start_latency_ns + 2_000


def graph_ns(spec: SimulatedSpec, length: int) -> int:
    """The copy of the input and one launch; then the graph's own copy and kernels with their gaps."""
    calls = spec.copy_call_ns + spec.graph_launch_call_ns + spec.start_latency_ns
    copy_ns = 1  # of 64 bytes
    return calls + copy_ns + length * (spec.node_gap_ns + 2_000)


def test_the_second_of_two_requests_waits_for_the_first(device: SimulatedDevice, tmp_path: Path) -> None:
    made = servers(device, tmp_path, "s", "m")
    assert (normal_ns(device.spec, 2), normal_ns(device.spec, 4)) == (15_000, 25_000)
    assert (graph_ns(device.spec, 2), graph_ns(device.spec, 4)) == (10_601, 15_201)
    due = Arrivals((0, 1), (0, 10_000))
    assert traffic.serve(device, made, "normal", due) == ((0, 15_000), (15_000, 40_000))
    assert traffic.serve(device, made, "graph", due) == ((0, 10_601), (10_601, 25_802))


def test_a_request_that_comes_late_starts_at_its_arrival(device: SimulatedDevice, tmp_path: Path) -> None:
    made = servers(device, tmp_path, "s", "m")
    starts, ends = traffic.serve(device, made, "normal", Arrivals((1, 0, 0), (0, 100_000, 100_000)))
    assert starts == (0, 100_000, 115_000)
    assert ends == (25_000, 115_000, 130_000)


def test_a_shape_without_a_graph_takes_the_normal_path(device: SimulatedDevice, tmp_path: Path) -> None:
    made = servers(device, tmp_path, "s", "m")
    made[1].path = None
    starts, ends = traffic.serve(device, made, "graph", Arrivals((1, 0), (0, 1)))
    assert (starts, ends) == ((0, 25_000), (25_000, 35_601))


def test_each_shape_takes_its_inputs_in_turn(device: SimulatedDevice, tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []

    def server(name: str) -> traffic.Server:
        made = traffic.Server.of(loaded(device, tmp_path), "s", 0)
        made.input_sets = [(0,), (1,)]
        made.normal = lambda inputs: seen.append((name, inputs[0]))
        return made

    traffic.serve(device, [server("a"), server("b")], "normal", Arrivals((0, 0, 1, 0), (0, 1, 2, 3)))
    assert seen == [("a", 0), ("a", 1), ("b", 0), ("a", 0)]


def test_a_path_that_is_hopelessly_behind_is_given_up(device: SimulatedDevice, tmp_path: Path) -> None:
    (only,) = servers(device, tmp_path, "s")
    only.normal = lambda inputs: device.host_work(traffic.GIVE_UP_NS)
    _starts, ends = traffic.serve(device, [only], "normal", Arrivals((0,) * 9, tuple(range(9))))
    assert ends == (traffic.GIVE_UP_NS, 2 * traffic.GIVE_UP_NS)


def test_an_error_of_the_step_is_placed_in_the_users_file(device: SimulatedDevice, tmp_path: Path) -> None:
    made = servers(device, tmp_path, "s", "m")

    def fail(inputs: Any) -> None:
        made[1].session.step()  # without its input

    made[1].normal = fail
    with pytest.raises(WorkloadError, match="step of shape m"):
        traffic.serve(device, made, "normal", Arrivals((0, 1), (0, 1)))


def test_on_a_real_clock_a_wait_ends_no_earlier_than_it_should() -> None:
    real = SimpleNamespace(clock_ns=time.perf_counter_ns)
    due = real.clock_ns() + 3_000_000
    Device.wait_until(cast("Device", real), due)
    assert real.clock_ns() >= due
    Device.wait_until(cast("Device", real), due)  # over already


# --- the whole rung -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Record, ...]:
    """The recorded mix, every shape of it captured."""
    folder = tmp_path_factory.mktemp("replayed")
    before = list(sys.path)
    try:
        return try_mix(SimulatedDevice(SimulatedSpec(jitter=0)), folder, TRAFFIC)
    finally:
        sys.path[:] = before


def test_every_level_is_run_twice_by_each_path(replayed: tuple[Record, ...]) -> None:
    assert [type(record) for record in replayed[:2]] == [PhaseStarted, TrafficRun]
    found = Counter((run.level, run.path) for run in runs(replayed) if not run.declared)
    assert found == {(level, path): 2 for level in traffic.LEVELS for path in ("normal", "graph")}
    assert Counter(run.path for run in runs(replayed) if run.declared) == {"normal": 2, "graph": 2}
    assert [run.order for run in runs(replayed)] == list(range(24))


def test_both_paths_get_the_same_arrivals(replayed: tuple[Record, ...]) -> None:
    for level in {run.level for run in runs(replayed)}:
        own = [run for run in runs(replayed) if run.level == level]
        assert len({(run.requests, run.arrivals_ns) for run in own}) == 1
        assert len(own[0].requests) >= traffic.FEWEST_REQUESTS


def test_the_mean_gap_is_the_mean_service_time_over_the_level(replayed: tuple[Record, ...]) -> None:
    service_ns = {0: 15_000, 1: 25_000, 2: 45_000}
    for run in runs(replayed):
        mean_ns = sum(service_ns[index] for index in run.requests) / len(run.requests)
        gap_ns = run.arrivals_ns[-1] / (len(run.arrivals_ns) - 1)
        assert run.level == pytest.approx(mean_ns / gap_ns, rel=1e-4)


def test_the_recorded_rate_keeps_the_recorded_times(replayed: tuple[Record, ...]) -> None:
    declared = next(run for run in runs(replayed) if run.declared)
    assert declared.shapes == ("s", "m", "l")
    assert declared.requests[:6] == (0, 1, 2, 0, 0, 1)
    # A repetition begins one mean gap, 100 µs, after the last of the four requests.
    assert declared.arrivals_ns[:6] == (0, 20_000, 200_000, 300_000, 400_000, 420_000)
    assert declared.level == pytest.approx(0.25, rel=0.02)


def test_beyond_saturation_only_the_normal_path_is_saturated(replayed: tuple[Record, ...]) -> None:
    view = view_traffic(replayed)
    assert not isinstance(view, NotMeasured)
    assert view.saturates_at("normal") == 1.1
    assert view.saturates_at("graph") == NotMeasured(reason="not up to level 1.10")
    assert view.capacity("normal") == pytest.approx(1.0, rel=0.02)
    # (10.6 + 10.6 + 15.2 + 24.4) µs of graphs for (15 + 15 + 25 + 45) µs
    assert view.capacity("graph") == pytest.approx(100 / 60.8, rel=0.03)
    beyond = view.levels[-1]
    assert isinstance(beyond.normal, PathLoad)
    assert isinstance(beyond.graph, PathLoad)
    assert beyond.normal.growth > 3
    assert beyond.graph.p95_ns < beyond.normal.p50_ns


def test_the_recorded_rate_decides(replayed: tuple[Record, ...]) -> None:
    check = traffic_check(view_traffic(replayed), Policy())
    assert check.status is GateStatus.PASS
    assert check.sentence.startswith("at the recorded rate (25.")


def test_weights_give_every_level_but_no_recorded_rate(device: SimulatedDevice, tmp_path: Path) -> None:
    text = 'TRAFFIC = {"m": 3, "s": 1}\n'
    mix = mix_of(loaded(device, tmp_path, text).workload, None)
    assert mix is not None
    made = [traffic.Server.of(loaded(device, tmp_path, text), name, 0) for name in ("m", "s")]
    plans = traffic.Traffic(device, made, mix, 0).plans()
    assert [(plan.level, plan.declared) for plan in plans] == [(level, False) for level in traffic.LEVELS]


def test_slow_requests_get_fewer_of_them(device: SimulatedDevice, tmp_path: Path) -> None:
    prepared = loaded(device, tmp_path, TRAFFIC)
    mix = mix_of(prepared.workload, None)
    assert mix is not None
    made = [traffic.Server.of(prepared, name, 0) for name in mix.weights]
    for server in made:
        server.normal = lambda inputs: device.host_work(100_000_000)
    plans = traffic.Traffic(device, made, mix, 0).plans()
    assert {plan.level: len(plan.due.requests) for plan in plans if not plan.declared} == {
        0.3: 4,
        0.6: 8,
        0.8: 12,
        0.95: 14,
        1.1: 16,
    }


# --- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "captured", "message"),
    [
        ("", ("s",), "the workload declares no request mix"),
        ('TRAFFIC = {"s": 1}', ("m",), "no shape of the mix has a graph that holds"),
    ],
)
def test_without_mix_or_graph_nothing_is_tried(
    device: SimulatedDevice, tmp_path: Path, text: str, captured: tuple[str, ...], message: str
) -> None:
    _started, found = try_mix(device, tmp_path, text, captured)
    assert isinstance(found, Finding)
    assert (found.code, found.message) == (Reason.NOT_TRIED, message)


def test_a_device_failure_is_a_finding(device: SimulatedDevice, tmp_path: Path) -> None:
    device.inject(Fault("illegal_address", after_launches=100))
    *_runs, found = try_mix(device, tmp_path, TRAFFIC)
    assert isinstance(found, Finding)
    assert (found.code, found.phase) == (Reason.CRASH, Phase.TRAFFIC)


def test_a_failure_of_the_workload_is_a_finding_and_raised(device: SimulatedDevice, tmp_path: Path) -> None:
    text = TRAFFIC + "def build(length):\n    raise RuntimeError('no weights')\n"
    with pytest.raises(WorkloadError, match="no weights"):
        try_mix(device, tmp_path, text)
    (run,) = (tmp_path / "runs").iterdir()
    *_, found = Run(run).records()
    assert isinstance(found, Finding)
    assert (found.code, found.where) == (Reason.WORKLOAD, "chain.py:28")


def test_graphs_are_given_up_at_the_end(device: SimulatedDevice, tmp_path: Path) -> None:
    made: list[GraphedStep] = []

    def make(session: Session, inputs: Inputs) -> GraphedStep:
        made.append(ready_graph(session, inputs))
        if len(made) == 2:
            raise RuntimeError("out of memory")
        return made[-1]

    run = create_run("chain.py", "module", "simulated", root=tmp_path / "runs")
    log, prepared = TrialLog(run, "s", Quiet()), loaded(device, tmp_path, TRAFFIC)
    traffic.try_traffic(prepared, log, job(run, ("s", "m")), make)
    assert made[0].state is State.FALLBACK
    found = run.records()[-1]
    assert isinstance(found, Finding)
    assert found.code is Reason.MEMORY


def test_graphs_that_disturb_each_other_are_found_before_timing(
    device: SimulatedDevice, tmp_path: Path
) -> None:
    class Stale:
        """Serves every request with the inputs of the first."""

        def __init__(self, session: Session, inputs: Inputs) -> None:
            self.graph, self.inputs = ready_graph(session, inputs), inputs

        def replay(self, inputs: Inputs) -> Any:
            return self.graph.replay(self.inputs)

        def invalidate(self) -> None:
            self.graph.invalidate()

    run = create_run("chain.py", "module", "simulated", root=tmp_path / "runs")
    traffic.try_traffic(
        loaded(device, tmp_path, TRAFFIC), TrialLog(run, "s", Quiet()), job(run, ("m",)), Stale
    )
    _started, found = run.records()
    assert isinstance(found, Finding)
    assert (found.code, found.blocks) == (Reason.WRONG_OUTPUT, True)
    assert "the one of m gives other outputs than the normal path (request 1, " in found.message
