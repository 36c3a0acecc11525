"""Frameworks as the trial sees them: arrays, streams, capture, random state, memory.

An adapter is chosen by the types of the workload's inputs and outputs. Frameworks are imported only inside
their own adapter, and only when one of their arrays turned up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from cudagraph_gate.adapters.foreign import framework_of
from cudagraph_gate.device import Device
from cudagraph_gate.device.port import Graph, HostArray, Stream, UpdateResult
from cudagraph_gate.errors import WorkloadError
from cudagraph_gate.model import Measured

__all__ = ["Adapter", "CapturedStep", "Executable", "adapter_for", "unusable"]


class Executable(Protocol):
    """An instantiated graph on the framework's current stream."""

    def upload(self) -> None:
        """Send it to the device without running it."""

    def launch(self) -> None:
        """Enqueue one replay."""

    def update(self, graph: Graph) -> UpdateResult:
        """Take over the parameters of a graph of the same topology."""

    def destroy(self) -> None:
        """Free it; it is never launched again."""


class CapturedStep(Protocol):
    """A captured step: its graph, and the static outputs that each replay overwrites."""

    @property
    def graph(self) -> Graph:
        """The captured graph."""

    @property
    def outputs(self) -> Any:
        """What the step returned while it was captured."""

    def instantiate(self) -> Executable:
        """Build the executable graph."""


class Adapter(Protocol):
    """One framework on one device."""

    @property
    def name(self) -> str:
        """The framework's name."""

    def is_device_array(self, value: Any) -> bool:
        """Whether ``value`` is an array in this device's memory that the adapter can handle."""

    def static_like(self, value: Any) -> Any:
        """A new array with the same shape, strides and values, on the current stream."""

    def copy_into(self, target: Any, source: Any) -> None:
        """Enqueue a copy of the values. Raises ValueError for another shape or dtype."""

    def poison(self, value: Any) -> None:
        """Enqueue overwriting every element with a value that no computation should return."""

    def to_host(self, value: Any) -> HostArray:
        """The values on the host (a dtype that NumPy lacks arrives as float32). Waits for the device."""

    def same_values(self, left: Any, right: Any) -> bool:
        """Whether two arrays hold the same, bit by bit; compared on the device where that can be done.

        False for another shape or dtype. Waits for the device.
        """

    def address(self, value: Any) -> int:
        """Device address of the array's first element."""

    def nbytes(self, value: Any) -> int:
        """Size of the array's elements, in bytes."""

    def current_stream(self) -> Stream:
        """The framework's current stream of this thread, for calls of the device port."""

    def new_stream(self) -> Any:
        """A new stream of the framework that does not wait for the legacy default stream.

        It lives for as long as this object is kept.
        """

    def on_stream(self, stream: Any) -> AbstractContextManager[None]:
        """Make a stream of :meth:`new_stream` the framework's current one in this thread for the block.

        Orders nothing: what the block's work needs must be finished before, as must its work after it.
        """

    def synchronize(self) -> None:
        """Wait for the current stream, as an application does at the end of a request."""

    def capture(self, step: Callable[..., Any], inputs: Sequence[Any]) -> CapturedStep:
        """Capture one call of ``step``; whatever happens, nothing is capturing afterwards.

        Raises what the step raised, or DeviceError for a failed capture.
        """

    def recover(self) -> None:
        """Mend what a failed capture left behind in the framework."""

    def random_state(self, step: Callable[..., Any] | None = None) -> Any:
        """The state of the framework's random generators, and of those that ``step`` reaches.

        None if there are none.
        """

    def set_random_state(self, state: Any) -> None:
        """Take a state back that :meth:`random_state` returned."""

    def draw_random(self) -> HostArray | None:
        """Some uniform random numbers from the framework's default generator on the device.

        None if it has none. Raises what the framework raises where its generator is broken.
        """

    def find_state(self, step: Callable[..., Any]) -> Mapping[str, Any]:
        """Mutable arrays that the framework itself knows of, such as a module's parameters and buffers."""

    def allocator_bytes(self) -> Measured:
        """Device memory that the framework's allocator holds."""

    def occupied_bytes(self) -> Measured:
        """The part of it that arrays take up, or that the allocator can't hand out to anybody else."""

    def free_memory(self) -> Sequence[tuple[int, int]]:
        """Address and size of what the allocator keeps for later: of no array, and of no graph."""

    def release_cached(self) -> None:
        """Let the framework's allocator give back to the device what nothing uses."""

    def release_workspaces(self) -> None:
        """Give up what the framework's libraries keep for each stream, until they need it again.

        Not where graphs may live that the framework itself has captured: they may work in it.
        """

    def keeping_arrays(self) -> AbstractContextManager[None]:
        """Hold every array that this thread's calls of the framework make in the block until its end.

        Whoever else lets go of one, its memory is handed out to nobody meanwhile. Blocks do not nest.
        """


def adapter_for(device: Device, values: Sequence[Any]) -> Adapter:
    """The adapter of the framework that ``values`` (inputs and outputs) belong to.

    Where several meet, the one whose current stream the step has to use: torch's, else CuPy's, else that of
    the device port. Raises NoDeviceError where the framework needs a GPU and there is none.
    """
    frameworks = {framework_of(value) for value in values}
    if "torch" in frameworks:
        from cudagraph_gate.adapters.torch import TorchAdapter

        return TorchAdapter(device)
    if "cupy" in frameworks:
        from cudagraph_gate.adapters.cupy import CupyAdapter

        return CupyAdapter(device)
    if "numba" in frameworks:
        from cudagraph_gate.adapters.numba import NumbaAdapter

        return NumbaAdapter(device)
    from cudagraph_gate.adapters.cuda_core import ArrayAdapter

    return ArrayAdapter(device)


def unusable(adapter: Adapter, named: Mapping[str, Any]) -> WorkloadError | None:
    """The complaint about the first value that is not a device array, if there is one."""
    for name, value in named.items():
        if not adapter.is_device_array(value):
            return WorkloadError(
                f"{name} is a {_describe(value)}, not a device array",
                hint="return arrays in GPU memory: a torch CUDA tensor, an array of "
                "cudagraph_gate.device, or anything with __cuda_array_interface__ or DLPack",
            )
    return None


def _describe(value: Any) -> str:
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    place = getattr(value, "device", None)
    return f"CPU {name}" if kind.__module__ == "numpy" or str(place) == "cpu" else name
