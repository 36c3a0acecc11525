"""Adapter for arrays of the device port, and for everything that shows its memory in a standard way.

``__cuda_array_interface__`` (CuPy, Numba, …) is read as it is, DLPack and cuda.core buffers through
cuda.core's ``StridedMemoryView``; only C-contiguous arrays are taken. Work must be enqueued on
``cudagraph_gate.device.current_device().current_stream()``, which speaks the ``__cuda_stream__`` protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import numpy as np

from cudagraph_gate.adapters.capturing import no_collection
from cudagraph_gate.device import Device, DeviceArray
from cudagraph_gate.device.port import ExecutableGraph, Graph, HostArray, Stream, UpdateResult
from cudagraph_gate.errors import DeviceError
from cudagraph_gate.model import Measured, NotMeasured

POISON_BYTE: Final = 0xFB
"""Makes floats of every width huge negative numbers (half: -65 376) that no error bound accepts."""


class ArrayExecutable:
    """A replayable graph on the current stream, whichever that is at each call."""

    def __init__(
        self, current_stream: Callable[[], Stream], executable: ExecutableGraph, memory: object = None
    ) -> None:
        self._current_stream = current_stream
        self._executable = executable
        self._memory = memory

    def upload(self) -> None:
        """Send it to the device."""
        self._executable.upload(self._current_stream())

    def launch(self) -> None:
        """Enqueue one replay."""
        self._executable.launch(self._current_stream())

    def update(self, graph: Graph) -> UpdateResult:
        """Whole-graph update."""
        return self._executable.update(graph)

    def destroy(self) -> None:
        """Free it."""
        self._executable.destroy()
        self._memory = None


class ArrayCapture:
    """A step captured by the device port; ``current_stream`` is where it will be replayed.

    ``memory`` is whatever must live as long as the graph or an executable made from it.
    """

    def __init__(
        self, current_stream: Callable[[], Stream], graph: Graph, outputs: Any, memory: object = None
    ) -> None:
        self._current_stream = current_stream
        self._memory = memory
        self.graph = graph
        self.outputs = outputs

    def instantiate(self) -> ArrayExecutable:
        """Build the executable graph."""
        return ArrayExecutable(self._current_stream, self.graph.instantiate(), self._memory)


class ArrayAdapter:
    """Arrays of the device port, of cuda.core, and of ``__cuda_array_interface__`` or DLPack."""

    name = "cuda.core"

    def __init__(self, device: Device) -> None:
        self._device = device
        self._capture_stream: Stream | None = None

    def is_device_array(self, value: Any) -> bool:
        """Whether the value is, or shows, contiguous memory of this device."""
        try:
            self._array(value)
        except (TypeError, ValueError):
            return False
        return True

    def static_like(self, value: Any) -> DeviceArray:
        """A device array with a copy of the values."""
        source = self._array(value)
        target = self._device.empty(source.shape, source.dtype)
        self._device.copy(target, source, self.current_stream())
        return target

    def copy_into(self, target: Any, source: Any) -> None:
        """Enqueue a copy on the current stream."""
        here, there = self._array(target), self._array(source)
        if (here.shape, here.dtype) != (there.shape, there.dtype):
            raise ValueError(f"{there.dtype}{there.shape} does not fit {here.dtype}{here.shape}")
        self._device.copy(here, there, self.current_stream())

    def poison(self, value: Any) -> None:
        """Enqueue a memset."""
        self._device.fill(self._array(value), POISON_BYTE, self.current_stream())

    def to_host(self, value: Any) -> HostArray:
        """The values on the host."""
        return self._array(value).to_host()

    def same_values(self, left: Any, right: Any) -> bool:
        """Compared on the host: the port has no kernel of its own for it."""
        one, other = self.to_host(left), self.to_host(right)
        same_kind = (one.shape, one.dtype) == (other.shape, other.dtype)
        return same_kind and one.tobytes() == other.tobytes()

    def address(self, value: Any) -> int:
        """Device address."""
        return self._array(value).pointer

    def nbytes(self, value: Any) -> int:
        """Size in bytes."""
        return self._array(value).nbytes

    def current_stream(self) -> Stream:
        """The device port's."""
        return self._device.current_stream()

    def new_stream(self) -> Stream:
        """A non-blocking stream of the device port."""
        return self._device.create_stream()

    @contextmanager
    def on_stream(self, stream: Any) -> Iterator[None]:
        """Make it the device port's current stream in this thread."""
        with self._device.use_stream(stream):
            yield

    def synchronize(self) -> None:
        """Wait for the current stream."""
        self.current_stream().synchronize()

    def capture(self, step: Callable[..., Any], inputs: Sequence[Any]) -> ArrayCapture:
        """Capture on a stream that is kept for captures, thread-local."""
        device = self._device
        device.synchronize()
        # Kept: each stream takes device memory of its own.
        stream = self._capture_stream = self._capture_stream or device.create_stream()
        with device.use_stream(stream):
            graph, outputs = capture_on(device, stream, step, inputs)
        return ArrayCapture(self.current_stream, graph, outputs)

    def recover(self) -> None:
        """Give up the stream of the failed capture."""
        self._capture_stream = None

    def random_state(self, step: Callable[..., Any] | None = None) -> Any:
        """None: the port has no random generators of its own."""
        del step

    def set_random_state(self, state: Any) -> None:
        """Nothing to take back."""

    def draw_random(self) -> HostArray | None:
        """None: the port has no random generators of its own."""
        return None

    def find_state(self, step: Callable[..., Any]) -> Mapping[str, Any]:
        """Nothing is known beyond what the workload's ``state()`` names."""
        del step
        return {}

    def allocator_bytes(self) -> Measured:
        """There is no caching allocator."""
        return NotMeasured(reason="the device port has no caching allocator")

    def occupied_bytes(self) -> Measured:
        """There is no caching allocator."""
        return self.allocator_bytes()

    def free_memory(self) -> Sequence[tuple[int, int]]:
        """Nothing is kept."""
        return ()

    def release_cached(self) -> None:
        """Nothing is cached."""

    def release_workspaces(self) -> None:
        """There are none."""

    def keeping_arrays(self) -> AbstractContextManager[None]:
        """Those of the device port."""
        return self._device.keeping_arrays()

    def _array(self, value: Any) -> DeviceArray:
        if isinstance(getattr(value, "pointer", None), int):
            array: DeviceArray = value
            return array
        if self._device.simulated:
            raise TypeError(f"{type(value).__name__} is no array of the simulated device")
        return self._viewed(value)

    def _viewed(self, value: Any) -> DeviceArray:
        interface = getattr(value, "__cuda_array_interface__", None)
        if interface is not None:
            return self._described(value, interface)
        if not hasattr(value, "__dlpack__"):
            raise TypeError(f"{type(value).__name__} shows no device memory")
        from cuda.core.utils import StridedMemoryView

        try:
            view = StridedMemoryView.from_dlpack(value, stream_ptr=-1)
            dtype = np.dtype(view.dtype)
        except (BufferError, RuntimeError) as error:
            raise TypeError(str(error)) from error
        if view.device_id < 0 or not view.is_device_accessible:
            raise TypeError(f"{type(value).__name__} lies in host memory")
        if view.strides is not None and not _contiguous(view.shape, view.strides):
            raise ValueError("the array is not C-contiguous")
        return self._device.view(int(view.ptr), tuple(view.shape), dtype, value)

    def _described(self, value: Any, interface: Mapping[str, Any]) -> DeviceArray:
        """Read here and not by cuda.core, which refuses version 2, the one that PyTorch speaks."""
        shape, dtype = tuple(interface["shape"]), np.dtype(interface["typestr"])
        strides = interface.get("strides")
        if strides is not None and not _contiguous(shape, [stride // dtype.itemsize for stride in strides]):
            raise ValueError("the array is not C-contiguous")
        return self._device.view(int(interface["data"][0]), shape, dtype, value)


def _contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    expected = 1
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True


def capture_on(
    device: Device, stream: Stream, step: Callable[..., Any], inputs: Sequence[Any]
) -> tuple[Graph, Any]:
    """The graph and the outputs of one call captured on ``stream``, which the caller has made current.

    Whatever happens, nothing is capturing afterwards. Raises what the step raised, or CaptureError.
    """
    with no_collection():
        device.begin_capture(stream)
        try:
            outputs = step(*inputs)
        except BaseException:
            _end_quietly(device, stream)
            raise
        return device.end_capture(stream), outputs


def _end_quietly(device: Device, stream: Any) -> None:
    """The step's own error is the reason; the driver's complaint at the end only repeats it."""
    try:
        device.end_capture(stream).destroy()
    except DeviceError:
        return
