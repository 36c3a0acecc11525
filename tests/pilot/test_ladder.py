"""The ladder through the whole pipeline: it is climbed rung by rung, and no further than it holds."""

from __future__ import annotations

from pathlib import Path

from pilot_workloads import Tried, line_of, try_workload

from cudagraph_gate import pipeline
from cudagraph_gate.errors import WorkloadError
from cudagraph_gate.evidence import Run
from cudagraph_gate.gates import Policy
from cudagraph_gate.gates.trial_view import TrialView, view_trial
from cudagraph_gate.model import Decision, GateStatus, Reason, Verdict
from cudagraph_gate.records import (
    Block,
    ConcurrentRun,
    InstanceRun,
    MemorySeries,
    PathIdle,
    Phase,
    RungEnded,
    TrafficRun,
    WorkerEnd,
)

PASS, FAIL = GateStatus.PASS, GateStatus.FAIL
CHAIN = """
def chain(out, x):
    device.copy(out, x)
    for k in range(4):
        add(out, k)

def build(shape):
    work = array()

    def step(x):
        chain(work, x)
        return work

    return step
"""
OWN = (
    CHAIN
    + """
def build_graphed(shape):
    static, out, stream = array(), array(), device.create_stream()
    with device.use_stream(stream):
        device.begin_capture(stream)
        chain(out, static)
        executable = device.end_capture(stream).instantiate()

    def graphed(x):
        device.copy(static, x)
        executable.launch(device.current_stream())
        return out

    return graphed
"""
)


def view(tried: Tried) -> TrialView:
    """The log as the gates see it."""
    return view_trial(pipeline.collect_evidence(tried.run))


def verdict(tried: Tried) -> Verdict:
    """What is judged of the run."""
    return pipeline.verdict(tried.run, Policy())


def statuses(tried: Tried) -> list[tuple[int, GateStatus]]:
    """Number and status of each rung that was judged."""
    return [(rung.number, rung.status) for rung in tried.rungs]


def count(tried: Tried, kind: type) -> int:
    """Records of one kind."""
    return sum(isinstance(record, kind) for record in tried.run.records())


# --- to the top -------------------------------------------------------------------------------------


def test_a_launch_bound_workload_climbs_all_rungs(rehearsed: Run) -> None:
    rungs = [record for record in rehearsed.records() if isinstance(record, RungEnded)]
    assert [(rung.number, rung.name, rung.status) for rung in rungs] == [
        (1, "fixed input", PASS),
        (2, "fresh inputs", PASS),
        (3, "all shapes", PASS),
        (4, "several instances", PASS),
        (5, "concurrent requests", PASS),
        (6, "traffic mix", PASS),
    ]
    judged = rehearsed.verdict()
    assert judged is not None
    assert judged.conditions == ()


def test_each_rung_from_the_fourth_on_and_memory_over_time_has_a_worker_of_its_own(rehearsed: Run) -> None:
    log = rehearsed.records()
    rungs = view_trial(pipeline.collect_evidence(rehearsed)).rungs
    assert list(rungs) == [Phase.MEMORY, Phase.INSTANCES, Phase.CONCURRENCY, Phase.TRAFFIC]
    assert [record.stage for record in log if isinstance(record, WorkerEnd)].count("pilot") == 5
    assert [record.activity for record in log if isinstance(record, MemorySeries)] == [
        "replays",
        "cycles",
        "aborted",
    ]
    assert {run.captured for run in log if isinstance(run, TrafficRun)} == {("default",)}


# --- rungs that do not hold -------------------------------------------------------------------------


def test_a_gain_that_the_copy_of_the_inputs_eats_ends_at_the_second_rung(tmp_path: Path) -> None:
    tried = try_workload(
        tmp_path,
        """
        SHAPES = {"one": 1, "two": 2}

        def _sum(shape, out, *parts):
            out[:] += sum(parts)

        SUM = Kernel("sum", "", _sum, 2_000)

        def build(shape):
            work = array()

            def step(a, b, c, d, e, f, g, h, i, j):
                device.fill(work, 0)
                for _ in range(4):
                    device.launch(SUM, LAUNCH, (work, a, b, c, d, e, f, g, h, i, j))
                return work

            return step

        def inputs(shape, seed):
            values = np.random.default_rng(seed).random((10, N), dtype=np.float32)
            return [device.array(part) for part in values]
        """,
        shapes="",
        rungs=6,
    )
    assert statuses(tried) == [(1, PASS), (2, FAIL)]
    assert tried.rungs[1].code is Reason.NO_GAIN  # it never breaks even
    assert "the graph is slower" in tried.rungs[1].reason
    assert "copying the inputs into static buffers takes" in tried.rungs[1].reason
    assert (view(tried).rungs, list(tried.shapes), count(tried, WorkerEnd)) == ({}, ["one"], 1)
    assert verdict(tried).rehearsal is Decision.NO_GO


def test_another_shape_that_fails_is_excluded_and_the_ladder_goes_on(tmp_path: Path) -> None:
    tried = try_workload(
        tmp_path,
        CHAIN
        + """
SHAPES = {"small": 1, "broken": 2, "large": 3}
build_right = build

def build(shape):
    return broken if shape == 2 else build_right(shape)

def broken(x):
    device.synchronize()  # illegal in a capture
    return x
""",
        shapes="",
        rungs=4,
    )
    assert tried.error is None
    assert {name: shape.completed for name, shape in tried.shapes.items()} == {
        "small": True,
        "broken": False,
        "large": True,
    }
    assert [found.shape for shape in tried.shapes.values() for found in shape.findings] == ["broken"]
    assert {shape.end.outcome for shape in tried.shapes.values() if shape.end} == {"finished"}
    assert [shape.nodes is not None for shape in tried.shapes.values()] == [True, False, True]
    assert statuses(tried) == [(1, PASS), (2, PASS), (3, PASS), (4, PASS)]
    assert tried.rungs[2].reason == "broken excluded, the other shapes hold"
    (condition,) = verdict(tried).conditions
    assert condition.startswith("shape broken excluded: ")
    assert "cuCtxSynchronize" in condition
    assert (count(tried, InstanceRun), count(tried, ConcurrentRun)) == (1, 0)


def test_instances_that_share_a_buffer_leave_serial_use_of_one(tmp_path: Path) -> None:
    tried = try_workload(
        tmp_path,
        """
        work = array()

        def build(shape):
            return step
        """,
        rungs=6,
    )
    assert statuses(tried) == [(1, PASS), (2, PASS), (3, PASS), (4, FAIL)]
    assert tried.rungs[3].code is Reason.REPLAY_RACE
    (condition,) = verdict(tried).conditions
    assert condition.startswith("serial use of one instance only: rung 4, several instances, fails: ")
    assert verdict(tried).gates[5].status is PASS
    assert count(tried, ConcurrentRun) == 0


# --- other graph paths ------------------------------------------------------------------------------


def test_the_workloads_own_graph_path_is_judged_instead_of_a_capture(tmp_path: Path) -> None:
    tried = try_workload(tmp_path, OWN, rungs=6)
    assert tried.shape.method == "own"
    assert statuses(tried) == [(1, PASS), (2, PASS), (3, PASS)]
    assert {block.path for block in tried.shape.of(Block)} == {"normal", "graph"}
    assert list(view(tried).rungs) == [Phase.MEMORY]
    (launches,) = (idle.graph_launches for idle in tried.shape.of(PathIdle) if idle.path == "graph")
    assert launches == 10
    assert verdict(tried).conditions == (
        "serial use only: a graph path of the workload's own is tried with one request at a time",
    )


def test_an_own_path_that_launches_no_graph_is_refused(tmp_path: Path) -> None:
    tried = try_workload(tmp_path, CHAIN + "\ndef build_graphed(shape):\n    return build(shape)\n", rungs=6)
    assert statuses(tried) == [(1, FAIL)]
    assert tried.rungs[0].code is Reason.NO_GRAPH_USED
    assert (
        "no graph was launched: 10 requests of build_graphed's path ran 50 operations"
        in tried.rungs[0].reason
    )
    judged = verdict(tried)
    assert judged.rehearsal is Decision.NO_GO
    assert Reason.NO_GRAPH_USED in {gate.code for gate in judged.gates if gate.status is FAIL}
    assert view(tried).rungs == {}


def test_an_explicit_graph_is_tried_beside_the_captured_one(tmp_path: Path) -> None:
    tried = try_workload(
        tmp_path,
        CHAIN
        + """
def build_explicit(shape, graph):
    x, out = array(), array()
    last = graph.add_copy(out, x)
    for k in range(4):
        last = graph.add_kernel(ADD, LAUNCH, (out, np.float32(k), np.int32(N)), after=[last])
    return (x,), out
""",
    )
    seen = view(tried)
    captured, explicit = tried.shape, seen.explicit["default"]
    assert (captured.method, explicit.method) == ("capture", "explicit")
    assert (captured.completed, explicit.completed, explicit.findings) == (True, True, ())
    assert captured.nodes is not None
    assert explicit.nodes is not None
    assert (explicit.nodes.nodes, explicit.nodes.kernels) == (captured.nodes.nodes, {"add": 4})
    assert [found.equal for found in explicit.comparisons if found.subject == "outputs"] == [True] * 7
    assert statuses(tried) == [(1, PASS), (2, PASS)]


def test_the_workloads_failure_in_a_later_worker_is_raised_after_all_else_was_written(tmp_path: Path) -> None:
    tried = try_workload(
        tmp_path,
        CHAIN
        + """
SHAPES = {"small": 1, "unbuilt": 2, "large": 3}
build_right = build

def build(shape):
    return build_right(shape) if shape != 2 else [][shape]
""",
        shapes="",
        rungs=3,
    )
    assert isinstance(tried.error, WorkloadError)
    assert tried.error.where == f"model.py:{line_of(tried.path, 'else [][shape]')}"
    assert {name: shape.completed for name, shape in tried.shapes.items()} == {
        "small": True,
        "unbuilt": False,
        "large": True,
    }
    assert statuses(tried) == [(1, PASS), (2, PASS), (3, PASS)]
    assert tried.rungs[2].reason == "unbuilt excluded, the other shapes hold"
