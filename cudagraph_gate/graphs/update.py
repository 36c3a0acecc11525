"""What may change between replays: which inputs, within which limits, and when an update stops paying.

A replay takes new *values* into static inputs whose addresses the graph holds. Everything else about an
input (shape, dtype, device, strides) is part of the graph: rules check it before anything is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Literal

import numpy as np

from cudagraph_gate.adapters import Adapter
from cudagraph_gate.model import Measured, NotMeasured
from cudagraph_gate.records import UpdateCost

Check = Callable[[Any], None]
"""Returns for an input that fits, else raises InputError."""
Bounds = tuple[float | None, float | None]
"""Least and greatest value that is allowed; None: no limit on that side."""


class InputError(ValueError):
    """An input does not fit the graph. Nothing was copied, and the graph is as usable as before."""


@dataclass(frozen=True)
class Layout:
    """What an array tells of itself; None for what it does not tell."""

    shape: tuple[int, ...] | None
    dtype: Any
    device: Any
    """As the framework compares devices; a host array's differs from any GPU array's."""
    strides: tuple[int, ...] | None
    """In elements."""

    @classmethod
    def of(cls, value: Any) -> Layout:
        """Read attributes only: nothing is copied, and the device is not asked."""
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
        interface = getattr(value, "__cuda_array_interface__", None) if shape is None else None
        if interface is not None:
            shape, dtype = interface["shape"], np.dtype(interface["typestr"])
        told = None if shape is None else tuple(shape)
        return cls(told, dtype, getattr(value, "device", None), _strides(value, dtype))


def _strides(value: Any, dtype: Any) -> tuple[int, ...] | None:
    stride = getattr(value, "stride", None)
    if callable(stride):  # torch: in elements
        return tuple(stride())
    nbytes, size = getattr(value, "strides", None), getattr(dtype, "itemsize", None)
    return tuple(each // size for each in nbytes) if nbytes is not None and size else None


def same_strides(shape: tuple[int, ...], one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether two strides mean the same places: those of dimensions of length 1 don't count."""
    if 0 in shape:
        return True
    sides = zip(shape, one, other, strict=True)
    return all(length == 1 or left == right for length, left, right in sides)


@dataclass(frozen=True)
class InputRule:
    """What one input must be like; None for what is not checked.

    ``minimum`` and ``maximum`` are checked only where they are given, because that reads the values: the
    device is waited for, and the array is copied to the host, at every request. NaN is within no limits.
    """

    name: str
    updatable: bool = True
    """Whether replays take new values; else the input keeps those of the capture."""
    shape: tuple[int, ...] | None = None
    dtype: Any = None
    device: Any = None
    strides: tuple[int, ...] | None = None
    nbytes: int | None = None
    minimum: float | None = None
    maximum: float | None = None

    def check_layout(self, adapter: Adapter, value: Any) -> None:
        """Raise InputError naming the first thing that does not fit."""
        told = Layout.of(value)
        self._refuse_if_other("shape", told.shape, self.shape)
        self._refuse_if_other("dtype", told.dtype, self.dtype)
        self._refuse_if_other("device", told.device, self.device)
        if not adapter.is_device_array(value):
            raise InputError(f"{self.name}: a {type(value).__name__} does not fit: no array of this device")
        if self.strides is not None and told.strides is not None and self.shape is not None:
            same = same_strides(self.shape, told.strides, self.strides)
            self._refuse_if_other("strides", self.strides if same else told.strides, self.strides)
        if self.nbytes is not None:
            self._refuse_if_other("size in bytes", adapter.nbytes(value), self.nbytes)

    def check_values(self, adapter: Adapter, value: Any) -> None:
        """Raise InputError when a value lies outside the limits. Waits for the device."""
        if self.minimum is None and self.maximum is None:
            return
        values = adapter.to_host(value)
        low = -np.inf if self.minimum is None else self.minimum
        high = np.inf if self.maximum is None else self.maximum
        outside = ~((values >= low) & (values <= high))
        if outside.any():
            first = values[outside].flat[0]
            raise InputError(f"{self.name}: the value {first} does not fit [{low}, {high}]")

    def _refuse_if_other(self, what: str, given: object, wanted: object) -> None:
        if given is not None and wanted is not None and given != wanted:
            raise InputError(f"{self.name}: {what} {given} does not fit {wanted}")

    def compiled(self, adapter: Adapter, example: Any) -> Check:
        """The check of every request, compiled for arrays like ``example``.

        What such an array tells is compared in one step, some 0.3 us; only what differs there, or does not
        tell its shape and dtype, is looked at closely.
        """
        kind, told = type(example), {name: getattr(self, name) for name in ("shape", "dtype", "device")}
        told = {name: wanted for name, wanted in told.items() if hasattr(example, name)}
        strides, ranged = _raw_strides(example, self.strides), (self.minimum, self.maximum) != (None, None)

        def closely(value: Any) -> None:
            self.check_layout(adapter, value)
            self.check_values(adapter, value)

        if ranged or self.nbytes is not None or None in told.values() or not {"shape", "dtype"} <= set(told):
            return closely
        read, expected = attrgetter(*told), tuple(told.values())

        def quickly(value: Any) -> None:
            if type(value) is kind and read(value) == expected and (strides is None or strides(value)):
                return
            closely(value)

        return quickly


def _raw_strides(example: Any, strides: tuple[int, ...] | None) -> Callable[[Any], bool] | None:
    """Compares strides as the array itself tells them; None where they are not checked."""
    if strides is None:
        return None
    if callable(getattr(example, "stride", None)):
        return lambda value: bool(value.stride() == strides)
    size = getattr(example.dtype, "itemsize", 1)
    in_bytes = tuple(each * size for each in strides)
    return lambda value: bool(value.strides == in_bytes)


@dataclass(frozen=True)
class InputRules:
    """One rule for each input, in the step's order."""

    rules: tuple[InputRule, ...]

    @classmethod
    def of(
        cls,
        inputs: Sequence[Any],
        *,
        names: Sequence[str] | None = None,
        updatable: Sequence[str] | None = None,
        ranges: Mapping[str, Bounds] | None = None,
        strides: bool = True,
    ) -> InputRules:
        """Rules that hold inputs to what ``inputs`` are like.

        ``updatable`` is the whitelist (a workload's ``UPDATABLE``): None allows all. ``ranges`` gives
        limits of values by name. With ``strides=False`` arrays of other strides are taken too: copying
        them is right, but the normal path might run other kernels for them. Raises ValueError for a name
        that no input has.
        """
        known = tuple(names) if names is not None else tuple(f"input {index}" for index in range(len(inputs)))
        if len(known) != len(inputs) or len(set(known)) != len(known):
            raise ValueError(f"{len(set(known))} names for {len(inputs)} inputs")
        limits = ranges or {}
        for name in (*(updatable or ()), *limits):
            if name not in known:
                raise ValueError(f"there is no input {name}: known are {', '.join(known) or 'none'}")
        return cls(
            tuple(
                _rule(name, value, updatable is None or name in updatable, limits.get(name), strides=strides)
                for name, value in zip(known, inputs, strict=True)
            )
        )

    @property
    def updatable(self) -> tuple[bool, ...]:
        """Per input: whether replays take new values."""
        return tuple(rule.updatable for rule in self.rules)

    def check(self, adapter: Adapter, inputs: Sequence[Any]) -> None:
        """Raise InputError for the first updatable input that does not fit."""
        if len(inputs) != len(self.rules):
            raise InputError(f"{len(inputs)} inputs for a graph of {len(self.rules)}")
        for rule, value in zip(self.rules, inputs, strict=True):
            if rule.updatable:
                rule.check_layout(adapter, value)
                rule.check_values(adapter, value)


def _rule(name: str, value: Any, updatable: bool, limits: Bounds | None, *, strides: bool) -> InputRule:
    told, (low, high) = Layout.of(value), limits or (None, None)
    if low is not None and high is not None and not low <= high:
        raise ValueError(f"{name}: nothing lies in [{low}, {high}]")
    return InputRule(
        name,
        updatable,
        told.shape,
        told.dtype,
        told.device,
        told.strides if strides else None,
        minimum=low,
        maximum=high,
    )


# --- what updates are worth ---------------------------------------------------------------------------

UpdateKind = Literal["kernel", "memcpy", "memset", "whole"]
_KINDS: Final[tuple[UpdateKind, ...]] = ("kernel", "memcpy", "memset", "whole")
_Curve = list[tuple[int, int]]
"""Changed nodes and ns, both ascending."""


@dataclass(frozen=True)
class UpdateWorth:
    """How far updating pays, by one kind of node or by whole-graph updates; numbers of changed nodes."""

    kind: UpdateKind
    measured_up_to: int
    """Most changed nodes that were measured."""
    rebuild_from_nodes: int | NotMeasured | None
    """From so many on, updating costs more than to instantiate again; None: never, as far as measured."""
    whole_from_nodes: int | NotMeasured | None
    """From so many on, one whole-graph update costs less than setting the nodes one by one."""
    pays_up_to_nodes: Measured
    """So many may change before every request, and the update costs no more than a request saves."""

    @property
    def loses_every_time(self) -> bool | NotMeasured:
        """Whether an update before every request costs more than a request saves, however little changes."""
        pays = self.pays_up_to_nodes
        return pays if isinstance(pays, NotMeasured) else pays == 0


def update_worth(
    costs: Sequence[UpdateCost], reinstantiate: Measured, saved: Measured
) -> tuple[UpdateWorth, ...]:
    """What the measured updates of one graph are worth, for each kind of which there are records.

    ``reinstantiate`` and ``saved`` (by one request) are in ns. Between measured points the cost is taken to
    rise in a straight line, and never to fall: a point below an earlier one is noise. The cost of a
    whole-graph update does not depend on how many nodes change, and is that of the update alone: the
    graph that it takes over has to be captured or built before.
    """
    whole = _curve(costs, "whole")
    one_cost: Measured = whole if isinstance(whole, NotMeasured) else whole[0][1]
    worths = []
    for kind in _KINDS:
        nodes = [cost.changed_nodes for cost in costs if cost.kind == kind]
        if nodes:
            curve, most = _curve(costs, kind), max(nodes)
            within = _first_above(curve, saved)
            worths.append(
                UpdateWorth(
                    kind,
                    most,
                    rebuild_from_nodes=_first_above(curve, reinstantiate),
                    whole_from_nodes=None if kind == "whole" else _first_above(curve, one_cost),
                    pays_up_to_nodes=most if within is None else _one_less(within),
                )
            )
    return tuple(worths)


def _curve(costs: Sequence[UpdateCost], kind: UpdateKind) -> _Curve | NotMeasured:
    curve: _Curve = []
    for cost in sorted((cost for cost in costs if cost.kind == kind), key=lambda cost: cost.changed_nodes):
        if isinstance(cost.elapsed, NotMeasured):
            return cost.elapsed
        least = curve[-1][1] if curve else 0
        curve.append((cost.changed_nodes, max(least, cost.elapsed)))
    if kind == "whole" and curve:
        return [(1, curve[-1][1])]
    return curve or NotMeasured(reason=f"no {kind} update was measured")


def _first_above(curve: _Curve | NotMeasured, limit: Measured) -> int | NotMeasured | None:
    """The smallest number of changed nodes whose cost exceeds the limit."""
    if isinstance(curve, NotMeasured):
        return curve
    if isinstance(limit, NotMeasured):
        return limit
    nodes, cost = curve[0]
    if cost > limit:
        return 1
    for more, dearer in curve[1:]:
        if dearer > limit:
            return nodes + (limit - cost) * (more - nodes) // (dearer - cost) + 1
        nodes, cost = more, dearer
    return None


def _one_less(nodes: int | NotMeasured) -> Measured:
    return nodes if isinstance(nodes, NotMeasured) else nodes - 1
