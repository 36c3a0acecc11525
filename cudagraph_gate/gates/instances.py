"""Rung 4, several instances: right outputs, memory within limits, and a gain that is still there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cudagraph_gate.gates.check import Check, fails, holds, joined, undecided
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.gates.wording import duration, percent, size
from cudagraph_gate.model import NotMeasured, Reason
from cudagraph_gate.records import InstanceRun, Record


def instances_check(records: Sequence[Record], shape: str, policy: Policy) -> Check:
    """The worst of what the newest run of ``shape`` says of outputs, memory and gain."""
    run = _newest(records, shape)
    if run is None:
        return undecided(Reason.NOT_TRIED, f"several instances of shape {shape} were not tried")
    return joined([_outputs(run), _memory(run, policy), _gain(run, policy)])


def measured_instances(records: Sequence[Record], shape: str) -> dict[str, Any]:
    """Figures of the newest run of ``shape``: times in ns, sizes in bytes; empty where there is none."""
    run = _newest(records, shape)
    if run is None:
        return {}
    return {
        "instances": run.count,
        "requests": run.requests,
        "wrong_requests": run.wrong,
        "bytes_per_instance": run.bytes_per_instance,
        "normal_round_ns": run.normal_ns,
        "graph_round_ns": run.graph_ns,
        "speed_up": _speed_up(run),
    }


def _newest(records: Sequence[Record], shape: str) -> InstanceRun | None:
    found = [record for record in records if isinstance(record, InstanceRun) and record.shape == shape]
    return found[-1] if found else None


def _outputs(run: InstanceRun) -> Check:
    requests = run.requests * run.count
    if run.wrong:
        detail = f": {run.detail}" if run.detail else ""
        return fails(
            Reason.REPLAY_RACE,
            f"{run.wrong} of {requests} requests of {run.count} instances differ from the normal path"
            + detail,
        )
    if run.count < 2 or not requests:
        return undecided(Reason.NOT_TRIED, f"{requests} requests of {run.count} instances were compared")
    return holds(f"{requests} requests of {run.count} instances agree with the normal path")


def _memory(run: InstanceRun, policy: Policy) -> Check:
    taken, limit = run.bytes_per_instance, policy.max_memory_bytes
    if isinstance(taken, NotMeasured):
        return undecided(Reason.UNMEASURABLE, f"memory of each instance: {taken.reason}")
    if taken > limit:
        return fails(Reason.MEMORY, f"each instance takes {size(taken)}, the limit is {size(limit)}")
    return holds(f"each instance takes {size(taken)}")


def _gain(run: InstanceRun, policy: Policy) -> Check:
    """By two medians whose noise was judged when they were measured."""
    rounds = _rounds(run)
    if isinstance(rounds, NotMeasured):
        return undecided(Reason.UNMEASURABLE, f"gain of {run.count} instances: {rounds.reason}")
    normal_ns, graph_ns = rounds
    gain = 1 - graph_ns / normal_ns
    seen = (
        f"a round of {run.count} requests takes {duration(normal_ns)} normal, {duration(graph_ns)} graph, "
        f"gain {percent(gain)}"
    )
    if gain < -policy.min_gain:
        return fails(Reason.REGRESS, f"the graphs are slower: {seen}")
    if gain < policy.min_gain:
        return fails(Reason.NO_GAIN, f"{seen}, below the minimum {percent(policy.min_gain)}")
    return holds(seen)


def _speed_up(run: InstanceRun) -> float | NotMeasured:
    rounds = _rounds(run)
    return rounds if isinstance(rounds, NotMeasured) else rounds[0] / rounds[1]


def _rounds(run: InstanceRun) -> tuple[int, int] | NotMeasured:
    """Median round of the normal path and of the graphs, in ns."""
    if isinstance(run.normal_ns, NotMeasured):
        return run.normal_ns
    if isinstance(run.graph_ns, NotMeasured):
        return run.graph_ns
    if run.normal_ns <= 0 or run.graph_ns <= 0:
        return NotMeasured(reason="a round takes no time: the clock is too coarse")
    return run.normal_ns, run.graph_ns
