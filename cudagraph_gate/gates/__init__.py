"""The seven gates: evidence and a policy in, a verdict out. Pure; needs no GPU."""

from cudagraph_gate.gates.latency import PathComparison, QuantilePair, compare_paths
from cudagraph_gate.gates.policy import Policy, load_policy
from cudagraph_gate.gates.trial_view import Evidence, ShapeTrial, TrialView, view_trial
from cudagraph_gate.gates.verdict import decide, exit_code, judge

__all__ = [
    "Evidence",
    "PathComparison",
    "Policy",
    "QuantilePair",
    "ShapeTrial",
    "TrialView",
    "compare_paths",
    "decide",
    "exit_code",
    "judge",
    "load_policy",
    "view_trial",
]
