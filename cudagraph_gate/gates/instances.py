"""Rung 4, several instances: right outputs, memory within limits, and a gain that is still there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cudagraph_gate.gates.check import Check, fails, holds, joined, undecided
from cudagraph_gate.gates.gain import gain_check
from cudagraph_gate.gates.latency import QuantilePair, pair_of
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.gates.wording import size
from cudagraph_gate.model import NotMeasured, Reason
from cudagraph_gate.records import InstanceRun, Record


@dataclass(frozen=True)
class Instances:
    """Several graphs of one shape, replayed together."""

    run: InstanceRun

    @cached_property
    def round(self) -> QuantilePair | NotMeasured:
        """One request on each stream, by the medians of the blocks."""
        return _round(self.run)


def view_instances(records: Sequence[Record], shape: str) -> Instances | None:
    """The newest run of ``shape``; None without any."""
    found = [record for record in records if isinstance(record, InstanceRun) and record.shape == shape]
    return Instances(found[-1]) if found else None


def instances_check(seen: Instances | None, shape: str, policy: Policy) -> Check:
    """The worst of what the newest run of ``shape`` says of outputs, memory and gain."""
    if seen is None:
        return undecided(Reason.NOT_TRIED, f"several instances of shape {shape} were not tried")
    return joined([_outputs(seen.run), _memory(seen.run, policy), _gain(seen, policy)])


def measured_instances(seen: Instances | None) -> dict[str, Any]:
    """Figures of the newest run: times in ns, sizes in bytes; empty where there is none."""
    if seen is None:
        return {}
    run, pair = seen.run, seen.round
    return {
        "instances": run.count,
        "requests": run.requests,
        "wrong_requests": run.wrong,
        "bytes_per_instance": run.bytes_per_instance,
        "normal_round_ns": run.normal_ns,
        "graph_round_ns": run.graph_ns,
        "speed_up": _speed_up(run),
        "round": pair if isinstance(pair, NotMeasured) else pair.as_dict(),
    }


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


def _gain(seen: Instances, policy: Policy) -> Check:
    if isinstance(seen.round, NotMeasured):
        return undecided(Reason.UNMEASURABLE, f"gain of {seen.run.count} instances: {seen.round.reason}")
    return gain_check(f"a round of {seen.run.count} requests", seen.round, policy)


def _round(run: InstanceRun) -> QuantilePair | NotMeasured:
    """By blocks: two medians alone, as older logs hold, have no interval."""
    if isinstance(timed := _medians(run), NotMeasured):
        return timed
    normal, graph = run.normal_blocks_ns, run.graph_blocks_ns
    if isinstance(normal, NotMeasured):
        return normal
    if isinstance(graph, NotMeasured):
        return graph
    return pair_of([(each,) for each in normal], [(each,) for each in graph], 0.5, paired=True)


def _speed_up(run: InstanceRun) -> float | NotMeasured:
    timed = _medians(run)
    return timed if isinstance(timed, NotMeasured) else timed[0] / timed[1]


def _medians(run: InstanceRun) -> tuple[int, int] | NotMeasured:
    """Median round of the normal path and of the graphs, in ns."""
    if isinstance(run.normal_ns, NotMeasured):
        return run.normal_ns
    if isinstance(run.graph_ns, NotMeasured):
        return run.graph_ns
    if run.normal_ns <= 0 or run.graph_ns <= 0:
        return NotMeasured(reason="a round takes no time: the clock is too coarse")
    return run.normal_ns, run.graph_ns
