"""Records of the append-only pilot log: one JSON object a line, written as each thing is measured.

A log that ends early is complete up to its last line; what is missing was not measured.
"""

from __future__ import annotations

from cudagraph_gate.records.attack import (
    AttackStarted,
    DrillRun,
    Proof,
    ScenarioEnded,
    ScenarioStarted,
    scenario_stage,
)
from cudagraph_gate.records.graphs import (
    CapturedMap,
    Comparison,
    NodeSet,
)
from cudagraph_gate.records.measured import (
    Block,
    Cost,
    GpuState,
    MemoryPoint,
    MemorySeries,
    PathIdle,
    StepShare,
    UpdateCost,
    WholeRequests,
)
from cudagraph_gate.records.phases import (
    RUNG_PHASES,
    Method,
    PathName,
    Phase,
)
from cudagraph_gate.records.rungs import (
    ConcurrentRun,
    InstanceRun,
    RungEnded,
    TrafficRun,
)
from cudagraph_gate.records.trial import (
    Finding,
    NormalPathProbe,
    PhaseStarted,
    ShapeEnded,
    TrialStarted,
    WorkerEnd,
)

__all__ = [
    "RUNG_PHASES",
    "AttackStarted",
    "Block",
    "CapturedMap",
    "Comparison",
    "ConcurrentRun",
    "Cost",
    "DrillRun",
    "Finding",
    "GpuState",
    "InstanceRun",
    "MemoryPoint",
    "MemorySeries",
    "Method",
    "NodeSet",
    "NormalPathProbe",
    "PathIdle",
    "PathName",
    "Phase",
    "PhaseStarted",
    "Proof",
    "Record",
    "RungEnded",
    "ScenarioEnded",
    "ScenarioStarted",
    "ShapeEnded",
    "StepShare",
    "TrafficRun",
    "TrialStarted",
    "UpdateCost",
    "WholeRequests",
    "WorkerEnd",
    "scenario_stage",
]

Record = (
    TrialStarted
    | PhaseStarted
    | Cost
    | MemoryPoint
    | NodeSet
    | CapturedMap
    | Comparison
    | Block
    | WholeRequests
    | StepShare
    | GpuState
    | PathIdle
    | UpdateCost
    | MemorySeries
    | InstanceRun
    | ConcurrentRun
    | TrafficRun
    | RungEnded
    | AttackStarted
    | ScenarioStarted
    | Proof
    | ScenarioEnded
    | DrillRun
    | Finding
    | NormalPathProbe
    | ShapeEnded
    | WorkerEnd
)
