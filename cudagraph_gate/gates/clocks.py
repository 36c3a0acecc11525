"""Whether the GPU's clocks let the timed blocks of both paths be compared."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from cudagraph_gate.gates.check import Check, undecided
from cudagraph_gate.gates.trial_view import ShapeTrial
from cudagraph_gate.gates.wording import listed
from cudagraph_gate.model import GateStatus, NotMeasured, Reason
from cudagraph_gate.records import GpuState, PathName

THROTTLE_REASONS: Final = frozenset(
    {
        "sw_power_cap",
        "hw_slowdown",
        "sw_thermal_slowdown",
        "hw_thermal_slowdown",
        "hw_power_brake_slowdown",
    }
)
"""NVML's reasons by which heat, power or the board lower the clocks, some blocks more than others."""
CLOCK_SHARE: Final = 0.03
"""Most that the paths' median SM clocks may differ. A kernel's time follows the clock at most in proportion,
so below this the clocks alone can't make a gain of the default minimum of 5 %."""
NAMED_REASONS: Final = 3


@dataclass(frozen=True)
class Clocks:
    """The GPU's state after the timed blocks of both paths."""

    normal_blocks: int
    """Blocks with a state; without any, nothing is known and nothing is said."""
    graph_blocks: int
    throttled: int
    """Blocks after which the clocks were held down."""
    reasons: tuple[str, ...]
    """Why, most frequent first."""
    normal_mhz: float | NotMeasured
    """Median SM clock."""
    graph_mhz: float | NotMeasured

    @property
    def sampled(self) -> int:
        """Blocks of both paths with a state."""
        return self.normal_blocks + self.graph_blocks

    @property
    def apart(self) -> float | NotMeasured:
        """How far the graph path's clock is from the normal path's, as a share; negative is lower."""
        normal, graph = self.normal_mhz, self.graph_mhz
        if isinstance(normal, NotMeasured):
            return normal
        return graph if isinstance(graph, NotMeasured) else graph / normal - 1

    def as_dict(self) -> dict[str, Any]:
        """For a gate's measured values."""
        return {
            "sampled_blocks": self.sampled,
            "throttled_blocks": self.throttled,
            "throttled_by": list(self.reasons),
            "normal_sm_clock_mhz": self.normal_mhz,
            "graph_sm_clock_mhz": self.graph_mhz,
        }


def view_clocks(trial: ShapeTrial) -> Clocks:
    """The states of ``trial`` in numbers."""
    normal, graph = _states(trial, "normal"), _states(trial, "graph")
    both = [*normal, *graph]
    reasons = [_slowing(state) for state in both]
    named = [reason for found in reasons for reason in found]
    return Clocks(
        normal_blocks=len(normal),
        graph_blocks=len(graph),
        throttled=sum(bool(found) for found in reasons),
        reasons=tuple(sorted(set(named), key=lambda reason: (-named.count(reason), reason))),
        normal_mhz=_median_clock(normal, "normal"),
        graph_mhz=_median_clock(graph, "graph"),
    )


def at_fair_clocks(trial: ShapeTrial, gain: Check) -> Check:
    """``gain``, or undecided where the clocks speak against comparing.

    Clocks that differ between the paths unsettle every answer. Throttling of some blocks unsettles a gain; a
    failure stands, since alternating blocks let throttling hit both paths alike. With every block throttled
    and equal clocks the limit is this GPU's steady state, and the comparison is fair.
    """
    clocks = view_clocks(trial)
    if isinstance(clocks.apart, float) and abs(clocks.apart) > CLOCK_SHARE:
        seen = (
            f"the median SM clock is {clocks.graph_mhz:.0f} MHz in {clocks.graph_blocks} graph blocks and "
            f"{clocks.normal_mhz:.0f} MHz in {clocks.normal_blocks} normal ones"
        )
        return undecided(Reason.ENVIRONMENT, f"{seen}: {gain.sentence}")
    if gain.status is not GateStatus.FAIL and 0 < clocks.throttled < clocks.sampled:
        why = listed(list(clocks.reasons), NAMED_REASONS)
        seen = f"the GPU was throttled in {clocks.throttled} of {clocks.sampled} timed blocks ({why})"
        return undecided(Reason.ENVIRONMENT, f"{seen}: {gain.sentence}")
    return gain


def _states(trial: ShapeTrial, path: PathName) -> list[GpuState]:
    return [state for state in trial.of(GpuState) if state.path == path]


def _slowing(state: GpuState) -> tuple[str, ...]:
    if isinstance(state.throttled_by, NotMeasured):
        return ()
    return tuple(reason for reason in state.throttled_by if reason in THROTTLE_REASONS)


def _median_clock(states: Sequence[GpuState], path: PathName) -> float | NotMeasured:
    clocks = [state.sm_clock_mhz for state in states]
    known = [clock for clock in clocks if isinstance(clock, int) and clock > 0]
    if known:
        return float(statistics.median(known))
    absent = next((clock for clock in clocks if isinstance(clock, NotMeasured)), None)
    return absent or NotMeasured(reason=f"the GPU's state after blocks of the {path} path is not recorded")
