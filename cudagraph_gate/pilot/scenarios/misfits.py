"""Inputs that do not fit a graph, made from one that does, in the arrays of its own framework."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cudagraph_gate.adapters.cuda_core import POISON_BYTE
from cudagraph_gate.adapters.foreign import framework_of, wrapped
from cudagraph_gate.graphs.update import Bounds, Layout, same_strides
from cudagraph_gate.pilot.session import Inputs, Session

KINDS: Final = ("count", "shape", "dtype", "device", "strides", "range")
"""What of a request's inputs can be wrong."""
RANGED_BYTES: Final = 64 * 1024**2
"""Limits of values are checked on the host: inputs above this size would make one request take a second."""


@dataclass(frozen=True)
class Misfit:
    """A request whose inputs do not fit."""

    kind: str
    """One of :data:`KINDS`."""
    what: str
    inputs: Inputs


def limits(session: Session, input_sets: Sequence[Inputs]) -> dict[str, Bounds]:
    """Least and greatest value of each updatable input over all requests, by name.

    Left out are inputs without an order or with NaN, which no limits admit, and very large ones.
    """
    found: dict[str, Bounds] = {}
    for index, (name, moves) in enumerate(zip(session.input_names, session.updatable(), strict=True)):
        if not moves or session.adapter.nbytes(input_sets[0][index]) > RANGED_BYTES:
            continue
        values = [session.adapter.to_host(inputs[index]) for inputs in input_sets]
        if all(each.size and each.dtype.kind in "fiu" and not np.isnan(each).any() for each in values):
            found[name] = (
                min(each.min().item() for each in values),
                max(each.max().item() for each in values),
            )
    return found


def misfits(session: Session, inputs: Inputs, ranges: Mapping[str, Bounds]) -> Iterator[Misfit]:
    """Requests like ``inputs`` with one thing wrong each, as far as such arrays can be wrong in it."""
    yield Misfit("count", f"{len(inputs) - 1} inputs", inputs[:-1])
    yield Misfit("count", f"{len(inputs) + 1} inputs", (*inputs, inputs[-1]))
    for index, (name, moves) in enumerate(zip(session.input_names, session.updatable(), strict=True)):
        if moves:
            for kind, what, wrong in _wrong_arrays(session, inputs[index], ranges.get(name)):
                yield Misfit(kind, f"{name} {what}", (*inputs[:index], wrong, *inputs[index + 1 :]))


def _wrong_arrays(session: Session, value: Any, bounds: Bounds | None) -> Iterator[tuple[str, str, Any]]:
    told = Layout.of(value)
    if told.shape is not None:
        more = (1, *told.shape)
        yield "shape", f"of shape {more}", _with_shape(session, value, more)
        if told.shape and told.shape[0] > 1:
            fewer = (told.shape[0] - 1, *told.shape[1:])
            yield "shape", f"of shape {fewer}", _shortened(session, value, fewer)
    if (other := _with_other_dtype(session, value)) is not None:
        yield "dtype", f"of dtype {Layout.of(other).dtype}", other
    yield "device", "as a NumPy array", session.adapter.to_host(value)
    if framework_of(value) == "torch":
        yield "device", "as a CPU tensor", value.detach().cpu()
    if (spread := _spread(session, value)) is not None:
        yield "strides", f"with strides {Layout.of(spread).strides}", spread
    if bounds is not None and (outside := _outside(session, value, bounds)) is not None:
        yield "range", f"with a value outside {list(bounds)}", outside


def _with_shape(session: Session, value: Any, shape: tuple[int, ...]) -> Any:
    """The same elements with one more axis: frameworks would broadcast such an input without a word."""
    if framework_of(value) == "torch":
        return value.detach()[None]
    if hasattr(value, "reshape"):
        return value.reshape(shape)
    return session.device.view(session.adapter.address(value), shape, _dtype(value), value)


def _shortened(session: Session, value: Any, shape: tuple[int, ...]) -> Any:
    if hasattr(value, "__getitem__"):
        return value[: shape[0]]
    return session.device.view(session.adapter.address(value), shape, _dtype(value), value)


def _with_other_dtype(session: Session, value: Any) -> Any:
    """Elements of another type; but for torch's of the same width, so that only the dtype gives it away."""
    if framework_of(value) == "torch":
        return _torch_with_other_dtype(value.detach())
    own = _dtype(value)
    if own is None or own.itemsize not in (1, 2, 4, 8):
        return None
    other = np.dtype(f"{'u' if own.kind == 'i' else 'i'}{own.itemsize}")
    if hasattr(value, "view"):
        return value.view(other)
    shape = Layout.of(value).shape or ()
    return session.device.view(session.adapter.address(value), shape, other, value)


def _torch_with_other_dtype(tensor: Any) -> Any:
    wide, narrow = (tensor.cdouble, tensor.cfloat) if tensor.is_complex() else (tensor.double, tensor.float)
    wider = wide()
    return wider if wider.dtype != tensor.dtype else narrow()


def _spread(session: Session, value: Any) -> Any:
    """An array of the same shape, its elements twice as far apart; None where strides can't be wrong."""
    told = Layout.of(value)
    if not told.shape or told.strides is None:
        return None
    wide = (*told.shape[:-1], 2 * told.shape[-1])
    every_other = (*(slice(None) for _ in told.shape[:-1]), slice(None, None, 2))
    if framework_of(value) == "torch":
        spread = value.new_empty(wide)[every_other]
    else:
        spread = wrapped(session.device, value, session.device.empty(wide, _dtype(value)))[every_other]
    given = Layout.of(spread).strides
    if given is None or same_strides(told.shape, given, told.strides):
        return None
    return spread


def _outside(session: Session, value: Any, bounds: Bounds) -> Any:
    """A copy in which the last element lies outside the bounds, or all do; None: no such value is known."""
    adapter, device = session.adapter, session.device
    wrong = adapter.static_like(value)
    width = adapter.nbytes(wrong) // adapter.to_host(wrong).size
    last = adapter.address(wrong) + adapter.nbytes(wrong) - width
    device.fill(device.view(last, (width,), np.uint8, wrong), POISON_BYTE, adapter.current_stream())
    if _is_outside(adapter.to_host(wrong), bounds):
        return wrong
    adapter.poison(wrong)
    return wrong if _is_outside(adapter.to_host(wrong), bounds) else None


def _is_outside(values: Any, bounds: Bounds) -> bool:
    low, high = bounds
    return not bool(np.all((values >= low) & (values <= high)))


def _dtype(value: Any) -> Any:
    told = Layout.of(value).dtype
    return None if told is None else np.dtype(told)
