"""Memory of the simulated device: one flat address space with reuse and poison.

Freed memory stays mapped, as it usually does on a GPU: reading it gives poison, or whatever the block's
next owner wrote. Only an address that no allocation ever covered is illegal.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from cudagraph_gate.device.port import DeviceArray, HostArray
from cudagraph_gate.errors import device_error

FIRST_ADDRESS: Final = 0x7F00_0000_0000
"""Where device addresses usually lie on Linux; far from 0, so that small numbers are illegal addresses."""
ALIGNMENT: Final = 256
"""cuMemAlloc aligns to at least 256 bytes."""
FRESH_POISON: Final = 0xCD
FREED_POISON: Final = 0xA5


class IllegalAccess(Exception):  # noqa: N818  (an event on the device, turned into a DeviceError by the engine)
    """An operation touched an address that no allocation ever covered."""

    def __init__(self, region: Region) -> None:
        super().__init__(f"{region.nbytes} bytes at {region.pointer:#x}")


@dataclass(frozen=True)
class Region:
    """An array as the device sees it: address, shape and element type, and nothing that keeps it alive."""

    pointer: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, array: DeviceArray) -> Region:
        """The region that an array covers now."""
        return cls(array.pointer, tuple(array.shape), array.dtype)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return prod(self.shape) * self.dtype.itemsize


class _Block:
    """One allocation's bytes, made on first access so that a huge allocation costs no host memory."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.live = True
        self._poison = FRESH_POISON
        self._bytes: HostArray | None = None

    def bytes(self) -> HostArray:
        if self._bytes is None:
            self._bytes = np.full(self.size, self._poison, np.uint8)
        return self._bytes

    def turn(self, *, live: bool) -> None:
        """Change owner: all bytes become the poison of the new state."""
        self.live = live
        self._poison = FRESH_POISON if live else FREED_POISON
        self._bytes = None


class DeviceMemory:
    """Allocation, reuse and access by address. The caller holds the device's lock."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.used_bytes = 0
        self._next = FIRST_ADDRESS
        self._bases: list[int] = []  # ascending: new blocks are only ever put at the end
        self._blocks: dict[int, _Block] = {}
        self._freed: dict[int, list[int]] = {}
        self.released: list[tuple[int, int]] | None = None
        """Address and size of what is released, while somebody wants to know."""

    def allocate(self, nbytes: int) -> int:
        """Address of ``nbytes`` poisoned bytes: of the last freed block of this size, else of a new one."""
        size = -(-nbytes // ALIGNMENT) * ALIGNMENT
        self.reserve(size, "cuMemAlloc")
        freed = self._freed.get(size)
        if freed:
            base = freed.pop()
            self._blocks[base].turn(live=True)
            return base
        base, self._next = self._next, self._next + size
        self._bases.append(base)
        self._blocks[base] = _Block(size)
        return base

    def release(self, pointer: int) -> None:
        """Give an allocation back. Raises CUDA_ERROR_INVALID_VALUE when there is none at ``pointer``."""
        block = self._blocks.get(pointer)
        if block is None or not block.live:
            detail = f"{pointer:#x} is not allocated"
            raise device_error("CUDA_ERROR_INVALID_VALUE", "cuMemFree", detail=detail)
        block.turn(live=False)
        self._freed.setdefault(block.size, []).append(pointer)
        if self.released is not None:
            self.released.append((pointer, block.size))
        self.give_back(block.size)

    def reserve(self, nbytes: int, call: str) -> None:
        """Account for memory. Raises DeviceMemoryError when so much is not free."""
        if nbytes > self.total_bytes - self.used_bytes:
            free = self.total_bytes - self.used_bytes
            raise device_error("CUDA_ERROR_OUT_OF_MEMORY", call, detail=f"{nbytes} bytes, {free} free")
        self.used_bytes += nbytes

    def give_back(self, nbytes: int) -> None:
        """Undo :meth:`reserve`."""
        self.used_bytes -= nbytes

    def clear(self) -> None:
        """Forget every allocation."""
        self._bases.clear()
        self._blocks.clear()
        self._freed.clear()
        self.used_bytes = 0

    def is_live(self, pointer: int) -> bool:
        """Whether an allocation that was not freed covers this address."""
        place = bisect_right(self._bases, pointer) - 1
        if place < 0:
            return False
        block = self._blocks[self._bases[place]]
        return block.live and pointer - self._bases[place] < block.size

    def view(self, region: Region) -> HostArray:
        """The region's bytes as a writable array. Raises IllegalAccess outside every block."""
        if region.nbytes == 0:
            return np.empty(region.shape, region.dtype)
        place = bisect_right(self._bases, region.pointer) - 1
        if place < 0:
            raise IllegalAccess(region)
        base = self._bases[place]
        block = self._blocks[base]
        first = region.pointer - base
        if first + region.nbytes > block.size:
            raise IllegalAccess(region)
        return block.bytes()[first : first + region.nbytes].view(region.dtype).reshape(region.shape)
