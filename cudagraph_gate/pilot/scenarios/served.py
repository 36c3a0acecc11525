"""Requests in the order in which they were served, and whether the normal path gives the same in that order.

Where several threads share a model, which request comes when is chance. Served one by one, each must have the
outputs that the normal path gives to the same requests in the same order, state and random numbers included.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from cudagraph_gate.device.port import HostArray
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.comparing import compare_values
from cudagraph_gate.pilot.describing import described, first_unequal
from cudagraph_gate.pilot.scenarios.builds import Model
from cudagraph_gate.pilot.session import Inputs

KEPT_BYTES: Final = 1 << 30
"""Most memory for outputs that are kept until all threads are done."""


@dataclass
class Served:
    """What one model answered; filled by several threads, each while it has the model to itself.

    Made, and asked, in a thread that is alone on the device.
    """

    model: Model
    _kept: list[tuple[int, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        correctness.restore(self.model.session, self.model.expected.start)

    def __len__(self) -> int:
        return len(self._kept)

    def request(self, number: int) -> tuple[int, Inputs]:
        """Place and inputs of the request that comes ``number``-th, the model's own in turn."""
        requests = self.model.expected.start.requests
        return number % len(requests), requests[number % len(requests)]

    def keep(self, place: int, outputs: Any) -> None:
        """Copies of what this request gave, on the current stream."""
        self._kept.append((place, correctness.copied(self.model.session.adapter, outputs)))

    def most(self, wanted: int) -> int:
        """So many requests, or fewer where their outputs would need too much memory; at least one."""
        moment = self.model.expected.normal.moments[0]
        size = sum(int(getattr(leaf, "nbytes", 0)) for leaf in moment.outputs.values())
        return max(1, min(wanted, KEPT_BYTES // max(1, size)))

    def first_wrong(self) -> str:
        """The first request that differs from the normal path in this order; empty: none."""
        session, expected = self.model.session, self.model.expected
        left = self._state()
        requests = [expected.start.requests[place] for place, _outputs in self._kept]
        start = replace(expected.start, requests=requests, changing=frozenset())
        normal = correctness.follow(session, session.call, start, alone=True)
        wanted = self._state()
        answers = iter([outputs for _place, outputs in self._kept])
        actual = correctness.follow(session, lambda _passed: next(answers), start, alone=True)
        same = replace(expected, start=start, normal=normal, repeated=normal)
        if difference := first_unequal(session, same, actual):
            return difference
        last = compare_values(
            session.shape_name, len(requests) - 1, "state", wanted, left, expected.tolerances
        )
        return "" if last.equal else described(last)

    def _state(self) -> dict[str, HostArray]:
        session, changing = self.model.session, self.model.expected.start.changing
        named = session.state() if changing else {}
        return {
            f"state {name}": session.adapter.to_host(named[name]) for name in sorted(changing & set(named))
        }
