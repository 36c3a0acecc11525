"""What is asked of a graph path of the workload's own: that it launches graphs at all."""

from __future__ import annotations

from cudagraph_gate.gates.check import Check, ending, fails, holds, undecided
from cudagraph_gate.gates.trial_view import ShapeTrial
from cudagraph_gate.model import NotMeasured, Reason
from cudagraph_gate.records import PathIdle, Phase


def own_path_checks(trial: ShapeTrial) -> list[Check]:
    """Whether the recorded requests of ``build_graphed``'s path launched graphs; none for other paths.

    A path without any is the normal path under another name, however fast it is. With fewer launches than
    requests some of them took another way, and what was timed is a mixture.
    """
    if trial.method != "own":
        return []
    recorded = [idle for idle in trial.of(PathIdle) if idle.path == "graph"]
    if not recorded:
        why = f"whether build_graphed's path launches graphs was not recorded: {ending(trial)}"
        return [undecided(Reason.NOT_TRIED, why)]
    return [_launch_check(recorded[-1])]


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


def kept_outputs_condition(trial: ShapeTrial | None) -> str:
    """The condition under which outputs that the next request overwrites may be used, if there are any."""
    if trial is None:
        return ""
    found = [
        finding
        for finding in trial.findings
        if finding.code is Reason.LIFETIME and finding.phase is Phase.TRAJECTORY and not finding.blocks
    ]
    return f"{found[-1].message}: {found[-1].advice}" if found else ""
