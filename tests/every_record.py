"""One record of each kind that a pilot log can hold."""

from __future__ import annotations

from cudagraph_gate.model import (
    Counts,
    GateStatus,
    GraphMap,
    GraphMapEdge,
    GraphMapNode,
    GraphRole,
    NotMeasured,
    Reason,
)
from cudagraph_gate.records import (
    AttackStarted,
    Block,
    CapturedMap,
    Comparison,
    ConcurrentRun,
    Cost,
    DrillRun,
    Finding,
    GpuState,
    InstanceRun,
    MemoryPoint,
    MemorySeries,
    NodeSet,
    NormalPathProbe,
    PathIdle,
    Phase,
    PhaseStarted,
    Proof,
    Record,
    RungEnded,
    ScenarioEnded,
    ScenarioStarted,
    ShapeEnded,
    StepShare,
    TrafficRun,
    TrialStarted,
    UpdateCost,
    WholeRequests,
    WorkerEnd,
)

NONE = NotMeasured(reason="not measured here")

RECORDS: tuple[Record, ...] = (
    TrialStarted(
        workload="mlp.py",
        shapes=("b1",),
        shape_values={"b1": "64"},
        simulated=True,
        device="simulated device",
        seed=7,
    ),
    PhaseStarted(shape="b1", phase=Phase.BUILD),
    Cost(shape="b1", phase=Phase.CAPTURE, elapsed=1_500),
    Cost(shape="b1", phase=Phase.UPLOAD, elapsed=NONE),
    MemoryPoint(shape="b1", phase=Phase.CAPTURE, device_free_bytes=1 << 40, allocator_bytes=NONE),
    NodeSet(
        shape="b1", nodes=2, kinds={"kernel": 2}, kernels={"µ": 2}, normal_kernels=Counts(by_name={"µ": 2})
    ),
    CapturedMap(
        shape="b1",
        map=GraphMap(
            parts=(
                GraphMapNode(
                    number=0, role=GraphRole.WORK, label="µ", library="", count=2, kernels={"µ": 2}, nbytes=0
                ),
            ),
            edges=(GraphMapEdge(source=0, target=0),),
            nodes=2,
            kinds={"kernel": 2},
            dependencies=1,
            longest_chain=2,
            width=1,
            roots=1,
            leaves=1,
        ),
    ),
    Comparison(
        shape="b1", request=0, subject="outputs", equal=True, exact=True, max_abs_error=0.0, tolerance=1e-6
    ),
    Block(shape="b1", path="graph", order=0, half="a", latencies_ns=(1, 2, 3), cpu_ns=4),
    WholeRequests(shape="b1", path="graph", order=0, half="a", latencies_ns=(1, 2), cpu_ns=4, step_calls=2),
    StepShare(shape="b1", requests=2, request_ns=9, step_ns=3, step_calls=2),
    AttackStarted(shape="b1", scenarios=("drill",), skipped={"hang": "--skip"}),
    ScenarioStarted(scenario="drill", part=0, shape="b1"),
    Proof(scenario="drill", part=0, name="memory", status=GateStatus.PASS),
    ScenarioEnded(
        scenario="drill", part=0, shape="b1", status=GateStatus.PASS, seen="as before", elapsed_ns=7
    ),
    DrillRun(
        shape="b1",
        stretch="switch",
        order=0,
        latencies_ns=(1, 2),
        sent=2,
        answered=2,
        wrong=0,
        graph_served=1,
        device_used_bytes=4_096,
    ),
    GpuState(
        shape="b1",
        path="graph",
        order=0,
        sm_clock_mhz=1_980,
        memory_clock_mhz=2_619,
        temperature_c=41,
        power_mw=NONE,
        throttled_by=("sw_power_cap",),
    ),
    PathIdle(
        shape="b1",
        method="own",
        path="graph",
        requests=10,
        window_ns=9,
        busy_ns=4,
        operations=20,
        graph_launches=10,
    ),
    UpdateCost(
        shape="b1",
        kind="kernel",
        changed_nodes=1,
        nodes=2,
        elapsed=NONE,
        result="CUDA_ERROR_INVALID_VALUE",
        node=1,
    ),
    MemorySeries(
        shape="b1",
        activity="replays",
        counts=(0, 200),
        device_used_bytes=(1 << 40, 1 << 40),
        allocator_bytes=(0, 1),
        host_rss_bytes=NONE,
    ),
    InstanceRun(
        shape="b1", count=4, requests=10, wrong=0, bytes_per_instance=NONE, normal_ns=1_000, graph_ns=400
    ),
    ConcurrentRun(
        shape="b1",
        path="normal",
        order=0,
        threads=4,
        latencies_ns=(1, 2),
        elapsed_ns=2,
        process_cpu_ns=3,
        wrong=0,
    ),
    TrafficRun(
        path="graph",
        level=0.3,
        order=0,
        shapes=("b1", "b8"),
        captured=("b1",),
        requests=(1, 0),
        arrivals_ns=(0, 5),
        starts_ns=(1, 5),
        ends_ns=(4, 8),
    ),
    RungEnded(number=4, name="several instances", status=GateStatus.FAIL, reason="no", code=Reason.NO_GAIN),
    Finding(shape="b1", phase=Phase.CAPTURE, code=Reason.CAPTURE_ILLEGAL, message="two\nlines"),
    NormalPathProbe(shape="b1", intact=True, detail=""),
    ShapeEnded(shape="b1", completed=False),
    WorkerEnd(stage="pilot", outcome="crashed", exit_code=None, signal="SIGSEGV", phase="capture"),
)
