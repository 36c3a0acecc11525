"""Values that pass between the rooms and into the evidence folder: frozen, typed, in ns and bytes.

Absence is a :class:`NotMeasured` with its reason, never -1 and never a missing field.
"""

from __future__ import annotations

from cudagraph_gate.model.attack import DRILL, SCENARIO_BY_NAME, SCENARIOS, Scenario, WorkerOutcome
from cudagraph_gate.model.base import (
    SCHEMA_VERSION,
    SUBMISSION_CAUSES,
    Cause,
    Limiter,
    Measured,
    NotMeasured,
    Reason,
    Value,
)
from cudagraph_gate.model.diagnosis import (
    DeviceIdle,
    Diagnosis,
    HostWork,
    IdleCauses,
    IdleGaps,
    IdleInterval,
    Launches,
    LaunchPhases,
    Prediction,
    ProfileTimes,
    QueueDepth,
    RangeSummary,
    Requests,
    ThreadSubmissions,
)
from cudagraph_gate.model.environment import FieldValue, Fingerprint, Scalar
from cudagraph_gate.model.graph_map import GraphMap, GraphMapEdge, GraphMapNode, GraphRole
from cudagraph_gate.model.hta import HtaIdle, HtaTemporal, HtaView
from cudagraph_gate.model.segments import (
    CallSite,
    CallSummary,
    Capturability,
    MapEdge,
    MapNode,
    MapRole,
    ReplayPrediction,
    Segment,
    SegmentMap,
    SegmentVariant,
    SegmentVariation,
    StablePiece,
)
from cudagraph_gate.model.statistics import Counts, Distribution, Histogram
from cudagraph_gate.model.verdict import Decision, GateResult, GateStatus, Verdict

__all__ = [
    "DRILL",
    "SCENARIOS",
    "SCENARIO_BY_NAME",
    "SCHEMA_VERSION",
    "SUBMISSION_CAUSES",
    "CallSite",
    "CallSummary",
    "Capturability",
    "Cause",
    "Counts",
    "Decision",
    "DeviceIdle",
    "Diagnosis",
    "Distribution",
    "FieldValue",
    "Fingerprint",
    "GateResult",
    "GateStatus",
    "GraphMap",
    "GraphMapEdge",
    "GraphMapNode",
    "GraphRole",
    "Histogram",
    "HostWork",
    "HtaIdle",
    "HtaTemporal",
    "HtaView",
    "IdleCauses",
    "IdleGaps",
    "IdleInterval",
    "LaunchPhases",
    "Launches",
    "Limiter",
    "MapEdge",
    "MapNode",
    "MapRole",
    "Measured",
    "NotMeasured",
    "Prediction",
    "ProfileTimes",
    "QueueDepth",
    "RangeSummary",
    "Reason",
    "ReplayPrediction",
    "Requests",
    "Scalar",
    "Scenario",
    "Segment",
    "SegmentMap",
    "SegmentVariant",
    "SegmentVariation",
    "StablePiece",
    "ThreadSubmissions",
    "Value",
    "Verdict",
    "WorkerOutcome",
]
