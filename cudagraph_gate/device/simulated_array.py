"""Arrays of the simulated device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cudagraph_gate.device.port import HostArray
from cudagraph_gate.device.simulated_memory import Region
from cudagraph_gate.device.simulated_stream import SimulatedStream
from cudagraph_gate.device.simulated_work import CopyWork


class SimulatedArray:
    """Simulated memory, freed by :meth:`free` or with the object unless it is a view.

    A view keeps ``owner`` alive. There is no ``__cuda_array_interface__``: these
    addresses mean nothing to other libraries.
    """

    def __init__(
        self, legacy_stream: SimulatedStream, region: Region, *, is_view: bool, owner: object = None
    ) -> None:
        self._engine = legacy_stream.engine
        self._legacy = legacy_stream
        self._region = region
        self._is_view = is_view
        self._owner = owner

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each dimension."""
        return self._region.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self._region.dtype

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self._region.nbytes

    @property
    def pointer(self) -> int:
        """Device address; 0 when it is empty or was freed."""
        return self._region.pointer

    def to_host(self) -> HostArray:
        """A copy on the host: waits for the whole device.

        Raises CUDA_ERROR_INVALID_VALUE when the array was freed or never lay in allocated memory.
        """
        engine, host = self._engine, np.empty(self.shape, self.dtype)
        with engine.call("cuMemcpyDtoH", engine.spec.copy_call_ns, blocking=True) as call:
            engine.captures.forbid_unsafe(call.name, engine.thread(), device_wide=True)
            work = CopyWork(host, self._region, "DtoH")
            engine.require_mapped(call, work)
            engine.thread().wait_until(engine.done_ns)
            engine.submit(call, self._legacy, work)
            engine.thread().wait_until(self._legacy.ready_ns)
        return host

    def free(self) -> None:
        """Give the memory back."""
        if not self._is_view and self.pointer:
            self._engine.free(self.pointer, self._engine.spec.memory_call_ns)
            self._region = Region(0, self.shape, self.dtype)

    def __del__(self) -> None:
        if not self._is_view and self.pointer:
            self._engine.drop(self.pointer)


@dataclass
class SimulatedPinned:
    """Host memory."""

    array: HostArray

    def free(self) -> None:
        """Nothing is left to do: Python frees it with the object."""
