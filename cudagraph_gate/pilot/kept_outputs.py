"""Outputs that the caller still holds when later requests are served: does a path overwrite them?

A graph writes its outputs to the same memory at each replay, and the normal path usually does not. Who keeps
an output without copying it then reads another request's values, which comparisons right after each request
do not show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cudagraph_gate.adapters import Adapter
from cudagraph_gate.device.port import HostArray
from cudagraph_gate.model import Reason
from cudagraph_gate.pilot.comparing import difference
from cudagraph_gate.pilot.correctness import Expectation, Step, follow, span
from cudagraph_gate.pilot.session import Inputs, Session
from cudagraph_gate.records import Finding, Method, Phase
from cudagraph_gate.workload import flatten

ADVICE: Final = "copy (clone) an output that is kept beyond the next request"


def kept_outputs(
    session: Session, step: Step, expected: Expectation, constants: Sequence[Any] = ()
) -> tuple[str, ...]:
    """Names of the first request's outputs that later requests of this path change while they are held.

    Runs the whole trajectory from its start once more. Raises what the step raises.
    """
    kept = _Kept(session.adapter, tuple(span(session.adapter, value) for value in constants))
    follow(session, step, expected.start, after_each=kept.after_request)
    return tuple(kept.changed)


def overwritten_by_graph(
    session: Session, replay: Step, expected: Expectation, constants: Sequence[Any] = ()
) -> tuple[str, ...]:
    """Names of the outputs that the graph path overwrites and the normal path does not.

    ``constants`` are static inputs that no replay changes: outputs that lie in them keep their values.
    """
    on_graph = kept_outputs(session, replay, expected, constants)
    if not on_graph:
        return ()
    normally = kept_outputs(session, session.call, expected)
    return tuple(name for name in on_graph if name not in normally)


def overwritten_finding(shape: str, names: tuple[str, ...], method: Method = "capture") -> Finding:
    """What was found, as a condition of use: it decides nothing by itself."""
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    what = "its output" if names == ("output",) else f"{'output' if len(names) == 1 else 'outputs'} {listed}"
    return Finding(
        shape=shape,
        method=method,
        phase=Phase.TRAJECTORY,
        code=Reason.LIFETIME,
        message=f"the graph path overwrites {what} at a later request, the normal path does not",
        advice=ADVICE,
        blocks=False,
    )


@dataclass
class _Kept:
    """The first request's outputs, kept as the caller would, and what they held."""

    adapter: Adapter
    constant_spans: tuple[tuple[int, int], ...] = ()
    changed: dict[str, None] = field(default_factory=dict)
    _held: dict[str, tuple[Any, HostArray]] = field(default_factory=dict)
    _places: dict[str, int] = field(default_factory=dict)
    _first: bool = True

    def after_request(self, given: Inputs, passed: Inputs, returned: Any) -> None:
        """Keep the outputs of the first request; look at them again after each other one."""
        del given, passed
        adapter = self.adapter
        leaves = {name: leaf for name, leaf in flatten(returned) if self._may_change(leaf)}
        if self._first:
            self._first = False
            self._held = {name: (leaf, adapter.to_host(leaf)) for name, leaf in leaves.items()}
            self._places = self._places_of(leaves)
            return
        places = set(self._places_of(leaves).values())
        for name, (leaf, before) in self._held.items():
            # Where requests give equal values only the address shows that the memory is the same.
            if self._places.get(name) in places or self._differs(leaf, before):
                self.changed[name] = None

    def _may_change(self, leaf: Any) -> bool:
        if not self.adapter.is_device_array(leaf):
            return False
        low, high = span(self.adapter, leaf)
        return not any(start <= low and high <= end for start, end in self.constant_spans)

    def _places_of(self, leaves: Mapping[str, Any]) -> dict[str, int]:
        adapter = self.adapter
        return {name: adapter.address(leaf) for name, leaf in leaves.items() if adapter.nbytes(leaf)}

    def _differs(self, leaf: Any, before: HostArray) -> bool:
        try:
            return difference(before, self.adapter.to_host(leaf)).error != 0
        except RuntimeError as error:
            # torch's own graphs refuse to read an output that a later run has overwritten.
            if "overwritten" in str(error):
                return True
            raise
