"""What a captured graph depends on, as the key of a cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from typing import Any

from cudagraph_gate.graphs.update import Layout

Shapes = tuple[tuple[int, ...], ...]
"""One shape for each input."""


@dataclass(frozen=True)
class ShapeRange:
    """Shapes that one padded graph serves, from ``least`` to ``greatest`` in every dimension."""

    least: Shapes
    greatest: Shapes

    def __contains__(self, shapes: Shapes) -> bool:
        ranks = [len(shape) for shape in shapes]
        if any(ranks != [len(shape) for shape in side] for side in (self.least, self.greatest)):
            return False
        low, length, high = (chain.from_iterable(side) for side in (self.least, shapes, self.greatest))
        return all(least <= here <= most for least, here, most in zip(low, length, high, strict=True))


@dataclass(frozen=True)
class GraphKey:
    """Everything that a captured graph depends on: equal keys may share a graph, others must not."""

    model_version: str
    shape: Shapes | ShapeRange
    dtype: tuple[str, ...]
    """One for each input."""
    device: str
    """Which GPU: its UUID, or its name and number."""
    fusion_mode: str = ""
    """Compile or fusion mode of the step, such as ``max-autotune``."""
    libraries: tuple[tuple[str, str], ...] = ()
    """Name and version of each library whose kernels may be captured; see :func:`library_versions`."""
    context_epoch: int = 0
    """Counted up by the application whenever it rebuilds its CUDA context."""
    stream_mode: str = ""
    """How the graph's streams relate to others, where that differs: ``per-thread``, ``legacy``."""

    @classmethod
    def of(cls, inputs: Sequence[Any], *, model_version: str, device: str, **others: Any) -> GraphKey:
        """The key for these inputs' shapes and dtypes. Raises TypeError for one that does not tell them."""
        layouts = [Layout.of(value) for value in inputs]
        if any(told.shape is None or told.dtype is None for told in layouts):
            raise TypeError("an input does not tell its shape and dtype: name them in GraphKey(...)")
        shape = tuple(tuple(int(length) for length in told.shape or ()) for told in layouts)
        dtype = tuple(str(told.dtype) for told in layouts)
        return cls(model_version=model_version, shape=shape, dtype=dtype, device=device, **others)


def library_versions(*names: str) -> tuple[tuple[str, str], ...]:
    """Installed versions of packages, for ``GraphKey.libraries``; ``absent`` for one that is not there."""

    def known(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            return "absent"

    return tuple((name, known(name)) for name in sorted(names))
