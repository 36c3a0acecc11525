"""What is asked of a graph path of the workload's own: that it launches graphs, and does the whole work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cudagraph_gate.gates.check import Check, ending, fails, holds, undecided
from cudagraph_gate.gates.trial_view import ShapeTrial
from cudagraph_gate.gates.wording import duration, percent
from cudagraph_gate.model import GateStatus, NotMeasured, Reason
from cudagraph_gate.records import PathIdle, PathName

LESS_WORK: Final = 0.9
"""Share of the normal path's GPU time below which an own path is bound to a condition: two recordings of
the same kernels differ by a few percent of clocks and caches, so a tenth less is other work. Fused kernels
are the usual reason, and right outputs don't tell those from work whose results nobody compares."""
MISSING_WORK: Final = 0.6
"""Below this it is undecided: fusing saves the passes over memory between kernels, and a step in which they
take two fifths of the GPU time is rare beside one whose work is skipped, cached, or done where no recorder
sees it."""


def own_path_checks(trial: ShapeTrial) -> list[Check]:
    """Whether ``build_graphed``'s path launched graphs and kept the GPU as busy; none for other paths.

    A path without any graph is the normal path under another name, however fast it is. With fewer launches
    than requests some of them took another way, and what was timed is a mixture. A path that does much less
    on the GPU may be fast because it leaves work out.
    """
    if trial.method != "own":
        return []
    graph = newest_recording(trial, "graph")
    if graph is None:
        why = f"whether build_graphed's path launches graphs was not recorded: {ending(trial)}"
        return [undecided(Reason.NOT_TRIED, why)]
    launched = _launch_check(graph)
    return [launched, _work_check(trial)] if launched.status is GateStatus.PASS else [launched]


@dataclass(frozen=True)
class Work:
    """GPU time of one request of each path, in ns, each from a recording of its own."""

    own_ns: float
    normal_ns: float

    @property
    def share(self) -> float:
        """Of the normal path's."""
        return self.own_ns / self.normal_ns

    def __str__(self) -> str:
        return (
            f"a request of build_graphed's path keeps the GPU busy for {duration(self.own_ns)}, "
            f"{percent(self.share)} of the normal path's {duration(self.normal_ns)}"
        )


def recorded_work(trial: ShapeTrial) -> Work | NotMeasured:
    """What both paths were recorded to do on the GPU; only of a path of the workload's own."""
    if trial.method != "own":
        return NotMeasured(reason="the graph is not the workload's own")
    own, normal = _busy_each(trial, "graph"), _busy_each(trial, "normal")
    if isinstance(own, NotMeasured):
        return own
    if isinstance(normal, NotMeasured):
        return normal
    if not normal:
        return NotMeasured(reason="the normal path keeps the GPU busy for no time")
    return Work(own, normal)


def own_work_condition(trial: ShapeTrial) -> str:
    """The condition for an own path that does less on the GPU than the normal one; empty if it doesn't."""
    work = recorded_work(trial)
    if isinstance(work, NotMeasured) or work.share >= LESS_WORK:
        return ""
    return (
        f"shape {trial.shape}: {work}: make sure that fused kernels explain it, and that no work is left out "
        "whose results the trial does not compare"
    )


def _work_check(trial: ShapeTrial) -> Check:
    work = recorded_work(trial)
    if isinstance(work, NotMeasured):
        why = f"whether build_graphed's path does the normal path's work is unknown: {work.reason}"
        return undecided(Reason.UNMEASURABLE, why)
    if work.share >= MISSING_WORK:
        return holds(str(work))
    limit = f"below {percent(MISSING_WORK)} fused kernels can't be told from work that is left out"
    return undecided(Reason.ESCAPED_WORK, f"{work}; {limit}")


def _busy_each(trial: ShapeTrial, path: PathName) -> float | NotMeasured:
    """GPU time of one request, in ns."""
    idle = newest_recording(trial, path)
    if idle is None:
        return NotMeasured(reason=f"the {path} path was not recorded")
    if isinstance(idle.busy_ns, NotMeasured):
        return idle.busy_ns
    if not idle.requests:
        return NotMeasured(reason=f"no request of the {path} path was recorded")
    return idle.busy_ns / idle.requests


def newest_recording(trial: ShapeTrial, path: PathName) -> PathIdle | None:
    """The newest recording of one path."""
    found = [idle for idle in trial.of(PathIdle) if idle.path == path]
    return found[-1] if found else None


def _launch_check(idle: PathIdle) -> Check:
    launches = idle.graph_launches
    if isinstance(launches, NotMeasured):
        why = f"whether build_graphed's path launches graphs is unknown: {launches.reason}"
        return undecided(Reason.UNMEASURABLE, why)
    if not idle.operations:
        nothing = f"none of the {idle.requests} recorded requests of build_graphed's path ran anything"
        return undecided(Reason.UNMEASURABLE, f"{nothing} that the recorder saw")
    seen = f"{idle.requests} requests of build_graphed's path launched {launches} graphs"
    if launches == 0:
        return fails(
            Reason.NO_GRAPH_USED,
            f"no graph was launched: {idle.requests} requests of build_graphed's path ran "
            f"{idle.operations} operations outside graphs",
        )
    if launches % idle.requests:  # more than one each is fine, but the same for all
        return undecided(Reason.NO_GRAPH_USED, f"{seen}: not every request is served by one")
    return holds(seen)
