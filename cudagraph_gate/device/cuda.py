"""The device port on a real GPU: cuda.core for compiling and the context, cuda.bindings for the rest.

It uses the device's primary context, so that it shares memory and streams with PyTorch, CuPy and Numba in
the same process. Every driver call goes through :func:`~cudagraph_gate.device.cuda_status.call`.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cudagraph_gate.device.cuda_graph import CudaGraph, driver_library
from cudagraph_gate.device.cuda_launch import compile_kernel, kernel_parameters
from cudagraph_gate.device.cuda_status import call, driver
from cudagraph_gate.device.port import (
    CaptureMode,
    Device,
    DeviceArray,
    Event,
    ExecutableGraph,
    Graph,
    HostArray,
    Kernel,
    LaunchShape,
    MemoryInfo,
    PinnedMemory,
    Stream,
)
from cudagraph_gate.errors import DeviceError, NoDeviceError

NS_PER_MS: Final = 1_000_000
_NOBODY: Final = object()
"""Owner of memory that a view must not free although nothing keeps it alive."""


class CudaArray:
    """Device memory, freed by :meth:`free` or with the object, unless another object owns it."""

    def __init__(
        self, device: CudaDevice, pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any], owner: object
    ) -> None:
        self._device = device
        self._pointer = pointer
        self._shape = shape
        self._dtype = dtype
        self._owner = owner

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each dimension."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self._dtype

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return int(np.prod(self._shape, dtype=np.int64)) * self._dtype.itemsize

    @property
    def pointer(self) -> int:
        """Device address."""
        return self._pointer

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self._shape,
            "typestr": self._dtype.str,
            "data": (self._pointer, False),
            "version": 3,
            "strides": None,
        }

    def to_host(self) -> HostArray:
        """A copy on the host."""
        self._device.synchronize()
        host = np.empty(self._shape, self._dtype)
        if self.nbytes:
            call(driver().cuMemcpyDtoH, host.ctypes.data, self._pointer, self.nbytes)
        return host

    def free(self) -> None:
        """Give the memory back."""
        if self._owner is None and self._pointer:
            call(driver().cuMemFree, self._pointer)
            self._device.note_free(self._pointer, self.nbytes)
            self._pointer = 0

    def __del__(self) -> None:
        with suppress(DeviceError):  # lost or capturing context: the process's end frees the memory
            self.free()


class CudaPinned:
    """Page-locked host memory."""

    def __init__(self, nbytes: int) -> None:
        self._pointer = int(call(driver().cuMemHostAlloc, nbytes, 0))
        buffer = (ctypes.c_uint8 * nbytes).from_address(self._pointer)
        self._array: HostArray | None = np.ctypeslib.as_array(buffer)

    @property
    def array(self) -> HostArray:
        """Its bytes. Raises RuntimeError once it was given back."""
        if self._array is None:
            raise RuntimeError("the pinned memory was given back")
        return self._array

    def free(self) -> None:
        """Give it back."""
        if self._array is not None:
            self._array = None
            call(driver().cuMemFreeHost, self._pointer)

    def __del__(self) -> None:
        with suppress(DeviceError, AttributeError):  # lost or capturing context, or never allocated
            self.free()


class CudaEvent:
    """A CUDA event with timing."""

    def __init__(self) -> None:
        self.handle = call(driver().cuEventCreate, 0)

    def synchronize(self) -> None:
        """Block until it has happened."""
        call(driver().cuEventSynchronize, self.handle)

    def elapsed_ns(self, since: Event) -> int:
        """Device time since another event; the driver's resolution is about 0.5 us."""
        if not isinstance(since, CudaEvent):
            raise TypeError("an event of this device is needed")
        elapsed_ms: float = call(driver().cuEventElapsedTime, since.handle, self.handle)
        return round(elapsed_ms * NS_PER_MS)

    def __del__(self) -> None:
        with suppress(DeviceError):  # the context is lost
            call(driver().cuEventDestroy, self.handle)


class CudaStream:
    """A CUDA stream; other libraries take it through the ``__cuda_stream__`` protocol."""

    def __init__(self, handle: Any, *, blocking: bool) -> None:
        self.handle = handle
        self._blocking = blocking

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, int(self.handle))

    @property
    def blocking(self) -> bool:
        """Whether it synchronises with the legacy stream."""
        return self._blocking

    @property
    def is_capturing(self) -> bool:
        """Whether it captures, or its capture was invalidated and not ended yet."""
        return bool(call(driver().cuStreamIsCapturing, self.handle).value)

    def synchronize(self) -> None:
        """Block until its work is done."""
        call(driver().cuStreamSynchronize, self.handle)

    def record(self) -> Event:
        """An event after the work enqueued so far."""
        event = CudaEvent()
        call(driver().cuEventRecord, event.handle, self.handle)
        return event

    def wait(self, event: Event) -> None:
        """Later work waits for ``event``."""
        if not isinstance(event, CudaEvent):
            raise TypeError("an event of this device is needed")
        call(driver().cuStreamWaitEvent, self.handle, event.handle, 0)


class OwnStream(CudaStream):
    """A stream that was made here, and is destroyed with this object: its queue takes device memory."""

    def __del__(self) -> None:
        with suppress(DeviceError):  # the context is lost
            call(driver().cuStreamDestroy, self.handle)


class CudaDevice(Device):
    """The first visible GPU. Raises NoDeviceError when there is none."""

    simulated = False

    def __init__(self) -> None:
        super().__init__()
        bindings = driver()
        driver_library()
        if call(bindings.cuDeviceGetCount) == 0:
            raise NoDeviceError("the driver sees no GPU", hint="check CUDA_VISIBLE_DEVICES")
        from cuda.core import Device as CoreDevice

        core = CoreDevice(0)
        core.set_current()
        self.name = core.name
        self._compute_capability = (core.compute_capability.major, core.compute_capability.minor)
        self._legacy = CudaStream(bindings.CUstream(0), blocking=True)
        self._default = self.create_stream()
        self._freed: list[tuple[int, int]] | None = None
        self._capturing: list[tuple[int, Stream]] = []
        """Captures that were begun and not ended: thread and stream."""

    # --- time -------------------------------------------------------------------------------------
    def clock_ns(self) -> int:
        """The host's monotonic clock."""
        return time.perf_counter_ns()

    def cpu_time_ns(self) -> int:
        """CPU time of the calling thread."""
        return time.thread_time_ns()

    # --- memory -----------------------------------------------------------------------------------
    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
        """Allocate with cuMemAlloc."""
        kind = np.dtype(dtype)
        nbytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        pointer = int(call(driver().cuMemAlloc, nbytes)) if nbytes else 0
        return self._held(CudaArray(self, pointer, tuple(shape), kind, owner=None))

    def pinned(self, nbytes: int) -> PinnedMemory:
        """Allocate with cuMemHostAlloc."""
        return CudaPinned(nbytes)

    def view(self, pointer: int, shape: tuple[int, ...], dtype: npt.DTypeLike, owner: object) -> DeviceArray:
        """An array over another object's memory."""
        holder = owner if owner is not None else _NOBODY
        return CudaArray(self, pointer, tuple(shape), np.dtype(dtype), owner=holder)

    def copy(
        self, target: DeviceArray | HostArray, source: DeviceArray | HostArray, stream: Stream | None = None
    ) -> None:
        """Enqueue a copy."""
        bindings, queue = driver(), self._handle(stream)
        if target.nbytes != source.nbytes:
            raise ValueError(f"copy of {source.nbytes} bytes into {target.nbytes}")
        if isinstance(source, np.ndarray):
            call(bindings.cuMemcpyHtoDAsync, _pointer(target), source.ctypes.data, source.nbytes, queue)
        elif isinstance(target, np.ndarray):
            call(bindings.cuMemcpyDtoHAsync, target.ctypes.data, _pointer(source), target.nbytes, queue)
        else:
            call(bindings.cuMemcpyDtoDAsync, _pointer(target), _pointer(source), target.nbytes, queue)

    def fill(self, target: DeviceArray, byte: int, stream: Stream | None = None) -> None:
        """Enqueue a memset."""
        call(driver().cuMemsetD8Async, target.pointer, byte, target.nbytes, self._handle(stream))

    @contextmanager
    def watching_frees(self) -> Iterator[list[tuple[int, int]]]:
        """What :meth:`CudaArray.free` gives back meanwhile."""
        freed: list[tuple[int, int]] = []
        self._freed = freed
        try:
            yield freed
        finally:
            self._freed = None

    def note_free(self, pointer: int, nbytes: int) -> None:
        """An array was given back."""
        if self._freed is not None:
            self._freed.append((pointer, nbytes))

    def memory_info(self) -> MemoryInfo:
        """Memory of the whole device."""
        free, total = call(driver().cuMemGetInfo)
        return MemoryInfo(int(free), int(total))

    def l2_cache_bytes(self) -> int:
        """Size of the L2 cache."""
        attribute = driver().CUdevice_attribute.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
        return int(call(driver().cuDeviceGetAttribute, attribute, call(driver().cuCtxGetDevice)))

    # --- streams ----------------------------------------------------------------------------------
    @property
    def legacy_stream(self) -> Stream:
        """The default stream."""
        return self._legacy

    def create_stream(self, *, blocking: bool = False) -> Stream:
        """A new stream."""
        bindings = driver()
        kinds = bindings.CUstream_flags
        flag = kinds.CU_STREAM_DEFAULT if blocking else kinds.CU_STREAM_NON_BLOCKING
        return OwnStream(call(bindings.cuStreamCreate, flag.value), blocking=blocking)

    def synchronize(self) -> None:
        """Wait for the whole device."""
        call(driver().cuCtxSynchronize)

    def _default_stream(self) -> Stream:
        return self._default

    def _handle(self, stream: Stream | None) -> Any:
        chosen = stream if stream is not None else self.current_stream()
        return chosen.handle  # type: ignore[attr-defined]

    # --- work -------------------------------------------------------------------------------------
    def launch(
        self, kernel: Kernel, shape: LaunchShape, args: Sequence[Any], stream: Stream | None = None
    ) -> None:
        """Enqueue a kernel."""
        compiled = compile_kernel(kernel, self._compute_capability)
        parameters = kernel_parameters(kernel, args)
        bindings = driver()
        function = bindings.CUfunction(int(compiled.handle))
        call(
            bindings.cuLaunchKernel,
            function,
            *shape.grid,
            *shape.block,
            0,
            self._handle(stream),
            parameters.address,
            0,
        )

    @contextmanager
    def annotate(self, name: str, *, domain: str = "cgate") -> Iterator[None]:
        """Mark the block as an NVTX range."""
        import nvtx

        with nvtx.annotate(name, domain=domain):
            yield

    # --- graphs -----------------------------------------------------------------------------------
    def begin_capture(self, stream: Stream, mode: CaptureMode = "thread_local") -> None:
        """Start capturing."""
        bindings = driver()
        modes = bindings.CUstreamCaptureMode
        chosen = {
            "thread_local": modes.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            "global": modes.CU_STREAM_CAPTURE_MODE_GLOBAL,
        }[mode]
        call(bindings.cuStreamBeginCapture, self._handle(stream), chosen)
        self._capturing.append((threading.get_ident(), stream))

    def end_capture(self, stream: Stream) -> Graph:
        """End the capture."""
        try:
            handle = call(driver().cuStreamEndCapture, self._handle(stream))
        except DeviceError as error:
            if error.code == "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED":
                self._end_origins()
            raise
        finally:
            self._capturing = [entry for entry in self._capturing if entry[1] is not stream]
        return CudaGraph(handle, self._compute_capability)

    def _end_origins(self) -> None:
        """Ending a forked stream fails and leaves it capturing until its origin ends: end the origins."""
        own = [entry for entry in self._capturing if entry[0] == threading.get_ident()]
        self._capturing = [entry for entry in self._capturing if entry not in own]
        for _thread, origin in own:
            if origin.is_capturing:
                with suppress(DeviceError):
                    call(driver().cuStreamEndCapture, self._handle(origin))

    def create_graph(self) -> Graph:
        """An empty graph."""
        return CudaGraph.explicit(self._compute_capability)

    def adopt_graph(self, handle: int, owner: object) -> Graph:
        """Another library's graph."""
        return CudaGraph(driver().CUgraph(handle), self._compute_capability, owner=owner)

    def adopt_executable(self, handle: int, graph: Graph, owner: object) -> ExecutableGraph:
        """Another library's executable."""
        if not isinstance(graph, CudaGraph):
            raise TypeError("a graph of this device is needed")
        return graph.adopt_executable(handle, owner)

    # --- life -------------------------------------------------------------------------------------
    def attach_thread(self) -> None:
        """Make the primary context current in this thread: it is so only in the one that opened it."""
        from cuda.core import Device as CoreDevice

        CoreDevice(0).set_current()

    def close(self) -> None:
        """Nothing is held beyond the primary context, which other libraries share."""


def _pointer(array: DeviceArray | HostArray) -> int:
    return array.pointer  # type: ignore[union-attr]
