"""What the requests' inputs can show: which never vary, which are the same, and requests of extreme seeds.

A graph that ignores an input, or takes one for another, looks right where their values do not differ. Values
are never invented: a step need not accept them. Only the workload's own ``inputs(shape, seed)`` makes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from cudagraph_gate.errors import WorkloadError
from cudagraph_gate.model import Reason
from cudagraph_gate.pilot.digests import digest
from cudagraph_gate.pilot.session import Inputs, Session
from cudagraph_gate.records import Finding, Method, Phase

EXTREME_SEEDS: Final = (0, 2**32 - 1)
"""The smallest and the largest that ``numpy.random.seed`` takes: a size, a mask or a position that depends on
the seed then lies at an end of its range."""


@dataclass(frozen=True)
class InputKinds:
    """How the inputs of several requests differ, by name."""

    constant: tuple[str, ...]
    """The same values in every request: whether replays take new ones can't be seen."""
    reused: tuple[str, ...]
    """The same memory in every request, so that none of them is fresh."""
    alike: tuple[tuple[str, str], ...]
    """Two that hold the same values in each request: that one is read for the other can't be seen."""
    varying: tuple[str, ...] = ()
    """Other values in some requests."""

    @property
    def complaint(self) -> str:
        """What can't be seen, in one line; empty if the inputs tell everything."""
        parts = []
        if self.constant:
            same = "lies in the same memory and" if set(self.constant) <= set(self.reused) else "always"
            parts.append(f"input {', '.join(self.constant)} {same} holds the same values for every seed")
        parts += [f"inputs {one} and {other} always hold the same values" for one, other in self.alike]
        return "; ".join(parts)


def kinds_of_inputs(session: Session, input_sets: Sequence[Inputs]) -> InputKinds:
    """Compare the inputs of several requests bit by bit; those without elements count as none.

    With fewer than two requests nothing is called constant.
    """
    adapter, names = session.adapter, session.input_names
    digests: dict[str, list[str]] = {}
    places: dict[str, set[int]] = {}
    for position, name in enumerate(names):
        values = [inputs[position] for inputs in input_sets]
        if values and all(adapter.nbytes(value) for value in values):
            digests[name] = [digest(adapter.to_host(value)) for value in values]
            places[name] = {adapter.address(value) for value in values}
    several = len(input_sets) > 1
    return InputKinds(
        constant=tuple(name for name, found in digests.items() if several and len(set(found)) == 1),
        reused=tuple(name for name, found in places.items() if several and len(found) == 1),
        alike=tuple(
            (one, other) for one, other in combinations(digests, 2) if digests[one] == digests[other]
        ),
        varying=tuple(name for name, found in digests.items() if len(set(found)) > 1),
    )


def baked_finding(
    shape: str, kinds: InputKinds, updatable: Sequence[str], method: Method = "capture"
) -> Finding | None:
    """A condition where inputs that a graph keeps as they were captured differ from request to request."""
    names = [name for name in kinds.varying if name not in set(updatable)]
    if not names or method == "own":
        return None
    return Finding(
        shape=shape,
        method=method,
        phase=Phase.TRAJECTORY,
        code=Reason.FROZEN_HOST_STATE,
        message=f"replays keep the captured values of {', '.join(names)}, which UPDATABLE leaves out and "
        "inputs() varies with its seed",
        advice="name them in UPDATABLE, or use the graph for requests with these very values only",
        blocks=False,
    )


def inputs_finding(
    shape: str, kinds: InputKinds, updatable: Sequence[str], method: Method = "capture"
) -> Finding | None:
    """What the inputs can't show, worth knowing; None where they show all.

    Inputs that are not ``updatable`` are baked in and need not vary.
    """
    moving = set(updatable)
    seen = InputKinds(
        constant=tuple(name for name in kinds.constant if name in moving),
        reused=kinds.reused,
        alike=tuple(pair for pair in kinds.alike if moving.issuperset(pair)),
    )
    if not seen.complaint:
        return None
    return Finding(
        shape=shape,
        method=method,
        phase=Phase.EXPECTED,
        code=Reason.UNMEASURABLE,
        message=f"{seen.complaint}: agreeing outputs do not show that replays take these inputs",
        advice="let inputs(shape, seed) vary them with its seed, or leave them out of UPDATABLE",
        blocks=False,
    )


@dataclass(frozen=True)
class ExtremeInputs:
    """Requests of the extreme seeds, and why others of them are left out."""

    input_sets: tuple[Inputs, ...]
    left_out: tuple[str, ...] = ()


def extreme_inputs(session: Session, like: Inputs) -> ExtremeInputs:
    """Inputs of the extreme seeds, as far as the workload makes them with the layout of ``like``.

    A workload that refuses such a seed, or makes arrays of other sizes for it, is none the worse for it.
    """
    made, left_out = [], []
    for seed in EXTREME_SEEDS:
        try:
            inputs = session.inputs(seed)
        except WorkloadError as error:
            left_out.append(f"seed {seed}: {error.what}")
            continue
        if [_layout(value) for value in inputs] == [_layout(value) for value in like]:
            made.append(inputs)
        else:
            left_out.append(f"seed {seed}: inputs of another size or type")
    session.device.synchronize()
    return ExtremeInputs(tuple(made), tuple(left_out))


def _layout(value: Any) -> tuple[str, tuple[int, ...]]:
    return str(getattr(value, "dtype", "")), tuple(getattr(value, "shape", ()))
