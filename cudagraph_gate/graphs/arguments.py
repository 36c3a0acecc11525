"""What two captures of one step recorded differently: values of the host that a graph keeps as they were.

Kernels take scalars by value, so a graph holds those of the moment of its capture. Where a later capture of
the same step on the same inputs holds others, replays of the first are out of date. Addresses may differ,
since each capture has memory of its own, but what they point to must still be allocated.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cudagraph_gate.device.port import ArgumentWord, Graph, NodeInfo

PLAUSIBLE: Final = (1e-12, 1e12)
"""Magnitudes between which eight bytes are taken for a float64, or four for a float32."""


@dataclass(frozen=True)
class ChangedArgument:
    """One argument of one kernel that two captures recorded with other values."""

    node: int
    kernel: str
    argument: int
    before: bytes
    after: bytes

    @property
    def shown(self) -> str:
        """``argument 2 of kernel scale: 0.1, later 0.05``."""
        return f"argument {self.argument} of {self.kernel}: {number(self.before)}, later {number(self.after)}"


@dataclass(frozen=True)
class OtherNodes:
    """Two captures of one step whose nodes are not the same: the host chose another way."""

    first: int
    """Place of the first node that differs."""
    before: str
    after: str

    @property
    def shown(self) -> str:
        """``node 3: scale, later shift``."""
        return f"node {self.first}: {self.before}, later {self.after}"


@dataclass(frozen=True)
class FreedArgument:
    """An address that a kernel was captured with, in memory that is not allocated any more."""

    node: int
    kernel: str
    argument: int

    @property
    def shown(self) -> str:
        """``argument 1 of add``."""
        return f"argument {self.argument} of {self.kernel}"


Change = OtherNodes | ChangedArgument | FreedArgument


def changed_since(before: Graph, after: Graph) -> Change | None:
    """The first thing that is out of date in ``before``, captured earlier than ``after``; None: they agree.

    Both are of one step, and live.
    """
    nodes, later = before.nodes(), after.nodes()
    for place in range(max(len(nodes), len(later))):
        was_called, is_called = (_called(side[place : place + 1]) for side in (nodes, later))
        if was_called != is_called:
            return OtherNodes(place, was_called, is_called)
    for node, one, other in zip(nodes, before.arguments(), after.arguments(), strict=True):
        changed = _first_change(node, one, other)
        if changed is not None:
            return changed
    return None


def _called(nodes: Sequence[NodeInfo]) -> str:
    """The node's name and launch shape; ``none`` where there is no node."""
    if not nodes:
        return "none"
    shape = nodes[0].shape
    return nodes[0].name if shape is None else f"{nodes[0].name} {shape.grid}×{shape.block}"


def _first_change(
    node: NodeInfo, before: tuple[ArgumentWord, ...], after: tuple[ArgumentWord, ...]
) -> Change | None:
    if len(before) != len(after):  # the driver told more of one than of the other
        return None
    for one, other in zip(before, after, strict=True):
        if one.is_address or one.value == other.value:
            continue
        if other.is_address:
            return FreedArgument(node.index, node.name, one.argument)
        was, now = _differing_half(one.value, other.value)
        return ChangedArgument(node.index, node.name, one.argument, was, now)
    return None


def _differing_half(before: bytes, after: bytes) -> tuple[bytes, bytes]:
    """Of eight bytes that hold two values, the one that differs."""
    half = len(before) // 2
    if len(before) == 8 and before[:half] == after[:half] and any(before[:half]):
        return before[half:], after[half:]
    if len(before) == 8 and before[half:] == after[half:] and any(before[half:]):
        return before[:half], after[:half]
    return before, after


def number(value: bytes) -> str:
    """The bytes as the number that they most likely are."""
    kind = {8: "d", 4: "f", 2: "e"}.get(len(value))
    if kind is not None:
        (real,) = struct.unpack(f"={kind}", value)
        low, high = PLAUSIBLE
        if low < abs(real) < high:
            return f"{real:g}"
    return str(int.from_bytes(value, "little", signed=True))
