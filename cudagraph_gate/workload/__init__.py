"""A workload: a plain Python module with ``build(shape)`` and ``inputs(shape, seed)``.

Loading it, choosing its shapes, calling it, and checking what it returns. What breaks the contract is a
:class:`~cudagraph_gate.errors.WorkloadError` of one line with file, line and a hint.
"""

from __future__ import annotations

from cudagraph_gate.workload.calls import (
    call_user,
    check_inputs,
    check_outputs,
    flatten,
    name_inputs,
    user_error,
    user_frame,
)
from cudagraph_gate.workload.contract import Workload
from cudagraph_gate.workload.loading import is_module_workload, load_workload
from cudagraph_gate.workload.shapes import Mix, mix_of, read_mix, select_shapes
from cudagraph_gate.workload.version import model_version

__all__ = [
    "Mix",
    "Workload",
    "call_user",
    "check_inputs",
    "check_outputs",
    "flatten",
    "is_module_workload",
    "load_workload",
    "mix_of",
    "model_version",
    "name_inputs",
    "read_mix",
    "select_shapes",
    "user_error",
    "user_frame",
]
