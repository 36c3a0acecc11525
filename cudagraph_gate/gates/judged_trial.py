"""One trial under one policy: each question is answered once, whoever asks.

A verdict's gates, its conditions and the ladder rest on the same checks of the same shapes, whose intervals
take most of its time. They are handed one :class:`JudgedTrial`, which remembers its answers.
"""

from __future__ import annotations

from functools import cached_property

from cudagraph_gate.gates.check import Check, worst
from cudagraph_gate.gates.comparison import comparison_checks
from cudagraph_gate.gates.concurrency import Concurrency, view_concurrency
from cudagraph_gate.gates.instances import Instances, view_instances
from cudagraph_gate.gates.latency import compare_paths
from cudagraph_gate.gates.lifecycle import lifecycle_checks
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.gates.segment import not_tried, segment_checks
from cudagraph_gate.gates.traffic import Traffic, view_traffic
from cudagraph_gate.gates.trial_view import Evidence, ShapeTrial, TrialView, view_trial
from cudagraph_gate.model import GateStatus, NotMeasured
from cudagraph_gate.records import Phase


class JudgedTrial:
    """The log by shape, and what the policy says of each shape and each later rung."""

    def __init__(self, evidence: Evidence, policy: Policy) -> None:
        self.evidence = evidence
        self.policy = policy
        self.view: TrialView = view_trial(evidence)
        self._checks: dict[str, list[Check]] = {}

    @property
    def target(self) -> ShapeTrial | None:
        """The shape that is judged, if it was tried."""
        target = self.view.target
        return target if target is not None and target.records else None

    def checks(self, shape: ShapeTrial) -> list[Check]:
        """All that the trial of one shape says of it."""
        if shape.shape not in self._checks:
            checks = segment_checks(shape) + lifecycle_checks(shape, self.policy)
            checks += comparison_checks(shape, self.policy, compare_paths(shape))
            self._checks[shape.shape] = checks
        return self._checks[shape.shape]

    def exclusion(self, shape: ShapeTrial) -> str:
        """Why a shape is left out; empty if it held. What was not shown to hold is left out too."""
        if not shape.records:
            return not_tried(self.view, shape.shape).sentence.removeprefix(f"shape {shape.shape} was ")
        decisive = worst(self.checks(shape))
        return "" if decisive[0].status is GateStatus.PASS else decisive[0].sentence

    def refused(self, shape: ShapeTrial) -> bool:
        """Whether a shape was tried and something speaks against it."""
        return bool(shape.records) and worst(self.checks(shape))[0].status is GateStatus.FAIL

    @property
    def holding(self) -> tuple[str, ...]:
        """Names of the shapes whose own trials hold, in the log's order."""
        first = [self.view.target] if self.view.target else []
        shapes = (*first, *self.view.others)
        return tuple(shape.shape for shape in shapes if shape.records and not self.exclusion(shape))

    @cached_property
    def instances(self) -> Instances | None:
        """What rung 4 recorded."""
        rung = self.view.rungs.get(Phase.INSTANCES)
        return None if rung is None else view_instances(rung.records, rung.shape)

    @cached_property
    def concurrency(self) -> Concurrency | None:
        """What rung 5 recorded."""
        rung = self.view.rungs.get(Phase.CONCURRENCY)
        return None if rung is None else view_concurrency(rung.records, rung.shape)

    @cached_property
    def traffic(self) -> Traffic | NotMeasured:
        """What rung 6 recorded."""
        rung = self.view.rungs.get(Phase.TRAFFIC)
        return view_traffic(() if rung is None else rung.records)
