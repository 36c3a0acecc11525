"""What work on a device consists of: kernels, arrays, pinned memory, events and streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from cudagraph_gate.errors import UsageError

HostArray = npt.NDArray[Any]
Dim = tuple[int, int, int]


@dataclass(frozen=True)
class LaunchShape:
    """Grid and block of a kernel launch, in blocks and in threads."""

    grid: Dim
    block: Dim


Reference = Callable[..., None]
"""NumPy twin of a kernel: called as ``reference(shape: LaunchShape, *args)``.

Device arrays arrive as NumPy arrays and are written in place.
"""
Cost = Callable[..., int]
"""Cost model of a kernel on the simulated device, in ns: called as ``cost(shape: LaunchShape, *args)``."""


@dataclass(frozen=True)
class Kernel:
    """One kernel for both devices.

    ``source`` is CUDA C++ for NVRTC with an ``extern "C" __global__`` function called ``name``;
    ``reference`` computes the same on NumPy arrays; ``cost_ns`` is its time on the simulated device.
    """

    name: str
    source: str
    reference: Reference
    cost_ns: Cost | int


def check_argument(kernel: Kernel, index: int, arg: object) -> None:
    """Raise UsageError unless ``arg`` is a device array or a NumPy scalar.

    A Python number's width on the device would be a guess.
    """
    if isinstance(arg, np.generic) or getattr(arg, "pointer", None) is not None:
        return
    raise UsageError(
        f"argument {index} of kernel {kernel.name} is a Python {type(arg).__name__}",
        hint="pass a device array or a NumPy scalar such as np.float32(x)",
    )


@dataclass(frozen=True)
class MemoryInfo:
    """Memory of the whole device, in bytes, as the driver reports it."""

    free_bytes: int
    total_bytes: int


class DeviceArray(Protocol):
    """A contiguous array in device memory."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each dimension."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""

    @property
    def nbytes(self) -> int:
        """Size in bytes."""

    @property
    def pointer(self) -> int:
        """Device address of the first element."""

    def to_host(self) -> HostArray:
        """A copy on the host: waits for the device; not permitted while a stream captures."""

    def free(self) -> None:
        """Give the memory back; its address may be used again by the next allocation."""


class PinnedMemory(Protocol):
    """Page-locked host memory, which copies read and write without staging."""

    @property
    def array(self) -> HostArray:
        """Its bytes."""

    def free(self) -> None:
        """Give it back; copies that use it must be over."""


class Event(Protocol):
    """A point in a stream's work."""

    def synchronize(self) -> None:
        """Block the calling thread until the event has happened."""

    def elapsed_ns(self, since: Event) -> int:
        """Device time from ``since`` to this event; both must have happened."""


class Stream(Protocol):
    """An in-order queue of device work."""

    @property
    def blocking(self) -> bool:
        """Whether the stream synchronises implicitly with the legacy stream."""

    @property
    def is_capturing(self) -> bool:
        """Whether work enqueued here is recorded into a graph instead of run."""

    def synchronize(self) -> None:
        """Block the calling thread until all work of the stream is done."""

    def record(self) -> Event:
        """An event that happens when the work enqueued so far is done."""

    def wait(self, event: Event) -> None:
        """Later work of this stream starts after ``event``; joins the event's capture, if it has one."""
