"""What gate 6 reports of the ladder beyond one shape: shapes, instances, concurrency, memory, traffic."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

import msgspec

from cudagraph_gate.gates.comparison import memory_growth
from cudagraph_gate.gates.concurrency import measured_concurrency
from cudagraph_gate.gates.explicit import explicit_note
from cudagraph_gate.gates.instances import measured_instances
from cudagraph_gate.gates.judged_trial import JudgedTrial
from cudagraph_gate.gates.latency import PathComparison, compare_paths
from cudagraph_gate.gates.memory import measured_memory
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.gates.segment import outputs_agreed
from cudagraph_gate.gates.shape_choice import ShapeCost, choose_buckets, choose_shapes, paddings
from cudagraph_gate.gates.traffic import measured_traffic, view_traffic
from cudagraph_gate.gates.trial_view import Evidence, ShapeTrial, TrialView, view_trial
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.records import Phase, TrialStarted


def measured_ladder(trial: JudgedTrial) -> dict[str, Any]:
    """Plain values, by part; a part that was not tried is absent."""
    view = trial.view
    found: dict[str, Any] = {
        "shapes": measured_shapes(trial.evidence, trial.policy),
        "explicit": _explicit(view),
        "instances": measured_instances(trial.instances),
        "concurrency": measured_concurrency(trial.concurrency),
        "memory_over_time": measured_memory(view.rungs.get(Phase.MEMORY)),
    }
    if Phase.TRAFFIC in view.rungs:
        found["traffic"] = measured_traffic(trial.traffic)
    plain: dict[str, Any] = msgspec.to_builtins({name: part for name, part in found.items() if part})
    return plain


def shape_costs(evidence: Evidence) -> tuple[ShapeCost, ...]:
    """Every shape that was timed, with its share of the requests: of the mix, else equal ones."""
    view = view_trial(evidence)
    trials = [trial for trial in (view.target, *view.others) if trial is not None]
    paths = {trial.shape: compare_paths(trial) for trial in trials}
    timed = {name: found for name, found in paths.items() if isinstance(found, PathComparison)}
    shares = _shares(view, len(timed))
    values = _shape_values(evidence)
    return tuple(
        ShapeCost(
            name=trial.shape,
            share=shares.get(trial.shape, 0.0) if shares else 1 / len(timed),
            normal_ns=timed[trial.shape].p50.normal_ns,
            graph_ns=timed[trial.shape].p50.graph_ns,
            nbytes=_bytes(trial),
            value=values.get(trial.shape),
        )
        for trial in trials
        if trial.shape in timed
    )


def measured_shapes(evidence: Evidence, policy: Policy) -> dict[str, Any]:
    """Each shape's gain, and the smallest set of them that keeps the gain; empty for fewer than two."""
    costs = shape_costs(evidence)
    if len(costs) < 2:
        return {}
    budget = policy.max_shapes_memory_bytes
    return {
        "by_shape": {
            cost.name: {
                "share": cost.share,
                "normal_ns": cost.normal_ns,
                "graph_ns": cost.graph_ns,
                "gain_ns_per_request": round(cost.gain_ns),
                "bytes": cost.nbytes,
            }
            for cost in costs
        },
        "capture": choose_shapes(costs, budget),
        "capture_if_padded": choose_buckets(costs, budget),
        "padding": paddings(costs),
        "memory_budget_bytes": budget,
    }


def _shares(view: TrialView, count: int) -> Mapping[str, float]:
    trial = view.rungs.get(Phase.TRAFFIC)
    traffic = view_traffic(trial.records) if trial is not None else NotMeasured(reason="no mix")
    return {} if isinstance(traffic, NotMeasured) or not count else traffic.shapes


def _shape_values(evidence: Evidence) -> dict[str, Any]:
    """The shapes themselves, as far as they were written as literals."""
    texts: dict[str, str] = {}
    for record in evidence.records:
        if isinstance(record, TrialStarted):
            texts |= record.shape_values
    values = {}
    for name, text in texts.items():
        try:
            values[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):  # an object of the user's: it can't be padded
            continue
    return values


def _bytes(trial: ShapeTrial) -> int:
    growth = memory_growth(trial)
    return 0 if isinstance(growth, NotMeasured) else max(0, growth)


def _explicit(view: TrialView) -> dict[str, Any]:
    """The explicit graph beside the captured one, by shape."""
    found = {}
    for name, trial in view.explicit.items():
        own, captured = compare_paths(trial), view.shapes.get(name)
        beside = compare_paths(captured) if captured is not None else NotMeasured(reason="not captured")
        found[name] = {
            "nodes": trial.nodes.nodes if trial.nodes else None,
            "explicit_ns": _p50(own),
            "captured_ns": _p50(beside),
            "outputs_agree": outputs_agreed(trial),
            "wrong": explicit_note(trial),
        }
    return found


def _p50(paths: PathComparison | NotMeasured) -> int | NotMeasured:
    return paths if isinstance(paths, NotMeasured) else paths.p50.graph_ns
