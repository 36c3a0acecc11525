"""Ballast: arrays that hold all free device memory, so that the next allocation finds none."""

from __future__ import annotations

import gc
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

import numpy as np

from cudagraph_gate.device.port import DeviceArray
from cudagraph_gate.errors import DeviceError, DeviceMemoryError
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.pilot.session import Session
from cudagraph_gate.pilot.tenants import other_processes

SMALLEST_BYTES: Final = 256
"""What cuMemAlloc aligns to: where not even this is left, nothing is."""
NOTICED_BYTES: Final = 4_096
"""Where so much can be had again, memory was not full; a graph node takes more (4.7 KiB as measured)."""


class Ballast:
    """Fills the session's device and gives all back at the end of the ``with`` block, whatever happened.

    Nothing is written to it, so it takes no host memory on the simulated device.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._chunks: list[DeviceArray] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.free()

    @property
    def nbytes(self) -> int:
        """What it holds."""
        return sum(chunk.nbytes for chunk in self._chunks)

    def fill(self, leave_bytes: int = 0) -> None:
        """Allocate until ``leave_bytes`` are free, within the device's granularity; 0: until nothing is.

        What the framework's allocator holds unused is given back to the device before. Chunks halve from the
        largest that fits: some sixty calls, whatever the size of the device.
        """
        device, adapter = self._session.device, self._session.adapter
        gc.collect()
        device.synchronize()
        adapter.release_cached()
        chunk = 1 << max(0, device.memory_info().free_bytes.bit_length() - 1)
        while chunk >= SMALLEST_BYTES:
            if leave_bytes and device.memory_info().free_bytes - chunk < leave_bytes:
                chunk //= 2
                continue
            try:
                self._chunks.append(device.empty((chunk,), np.uint8))
            except DeviceMemoryError:
                chunk //= 2

    def still_full(self) -> bool:
        """Whether nothing was given back to the device since it was filled, by anybody."""
        try:
            self._session.device.empty((NOTICED_BYTES,), np.uint8).free()
        except DeviceMemoryError:
            return True
        return False

    def free(self) -> None:
        """Give it back, and what the framework has cached since. Raises DeviceError if it can't be."""
        failed: DeviceError | None = None
        with suppress(DeviceError):  # a lost context, say: freeing says so
            self._session.device.synchronize()
        while self._chunks:
            try:
                self._chunks.pop().free()
            except DeviceError as error:
                failed = error
        if failed is not None:
            raise failed
        gc.collect()
        self._session.adapter.release_cached()


def unfillable(session: Session) -> str:
    """Why this device's memory must not be filled; empty: it may be.

    Another process would run out of memory. Where it is not known whether there is one, it is not tried.
    """
    others = other_processes(session.device)
    if isinstance(others, NotMeasured):
        return others.reason
    return f"{others} other processes use the GPU, and would run out of memory" if others else ""
