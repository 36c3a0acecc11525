"""The model version that a workload tells: part of every key by which a captured graph is kept."""

from __future__ import annotations

from cudagraph_gate.errors import WorkloadError
from cudagraph_gate.workload.calls import call_user
from cudagraph_gate.workload.contract import Workload


def model_version(workload: Workload) -> str | None:
    """What ``version()`` says now, as text; None where the workload declares none.

    Raises WorkloadError, with file and line, for what it raises and for anything but an int or text that is
    not blank: the text of another object may hold its address, and would name a new version in each process.
    """
    if workload.version is None:
        return None
    told = call_user(workload.version, workload=workload, what="version()")
    if isinstance(told, str | int) and not isinstance(told, bool) and str(told).strip():
        return str(told)
    what = repr(told) if isinstance(told, str) else f"a {type(told).__name__}"
    raise WorkloadError(
        f"version() returned {what}",
        where=workload.where("version"),
        hint="return text that changes with the model, such as the revision or hash of its weights",
    )
