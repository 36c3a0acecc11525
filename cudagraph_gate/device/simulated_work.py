"""What one operation of the simulated device does, how long it takes and what a graph node keeps of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

from cudagraph_gate.device.port import (
    PAGEABLE,
    ArgumentWord,
    HostArray,
    Kernel,
    LaunchShape,
    NodeInfo,
    NodeKind,
    check_argument,
)
from cudagraph_gate.device.simulated_memory import DeviceMemory, Region
from cudagraph_gate.device.simulated_spec import SimulatedSpec

Direction = Literal["HtoD", "DtoH", "DtoD"]
Operand = Region | HostArray


@dataclass(frozen=True, eq=False)
class KernelWork:
    """A kernel with its arguments: addresses and scalars, frozen at the call."""

    kernel: Kernel
    shape: LaunchShape
    args: tuple[Any, ...]
    kind: NodeKind = field(default="kernel", init=False)

    @classmethod
    def of(cls, kernel: Kernel, shape: LaunchShape, args: Sequence[Any]) -> KernelWork:
        """Freeze arguments. Raises UsageError for a Python number."""
        for index, arg in enumerate(args):
            check_argument(kernel, index, arg)
        frozen = (arg if isinstance(arg, np.generic) else Region.of(arg) for arg in args)
        return cls(kernel, shape, tuple(frozen))

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.kernel.name

    @property
    def nbytes(self) -> int:
        """A kernel has no size of its own."""
        return 0

    @property
    def copy_engine(self) -> Direction | None:
        """Kernels of different streams run at the same time: no engine limits them."""
        return None

    def operands(self, memory: DeviceMemory) -> list[Any]:
        """Arguments as the reference takes them. Raises IllegalAccess."""
        return [memory.view(arg) if isinstance(arg, Region) else arg for arg in self.args]

    def duration_ns(self, spec: SimulatedSpec, operands: list[Any]) -> int:
        """The kernel's cost model, without jitter."""
        cost = self.kernel.cost_ns
        return int(cost(self.shape, *operands)) if callable(cost) else cost

    def run(self, operands: list[Any]) -> None:
        """Compute."""
        self.kernel.reference(self.shape, *operands)

    def node_info(self, index: int) -> NodeInfo:
        """What the node says of itself."""
        return NodeInfo(index, "kernel", self.name, self.shape)

    def argument_words(self, memory: DeviceMemory) -> tuple[ArgumentWord, ...]:
        """Addresses and scalars, one for each argument."""
        return tuple(_word(memory, number, arg) for number, arg in enumerate(self.args))


@dataclass(frozen=True, eq=False)
class CopyWork:
    """A copy; a host side is kept by reference and read or written when the copy runs."""

    target: Operand
    source: Operand
    name: Direction
    kind: NodeKind = field(default="memcpy", init=False)

    @classmethod
    def of(cls, target: Operand, source: Operand) -> CopyWork:
        """Check sizes and sides. Raises ValueError, or TypeError for two host arrays."""
        if target.nbytes != source.nbytes:
            raise ValueError(f"copy of {source.nbytes} bytes into {target.nbytes}")
        for side in (target, source):
            if isinstance(side, np.ndarray) and not side.flags.c_contiguous:
                raise ValueError("the host array of a copy must be contiguous")
        if isinstance(source, np.ndarray):
            if isinstance(target, np.ndarray):
                raise TypeError("one side of a copy must be a device array")
            return cls(target, source, "HtoD")
        return cls(target, source, "DtoH" if isinstance(target, np.ndarray) else "DtoD")

    @property
    def shape(self) -> None:
        """Copies have no launch shape."""

    @property
    def nbytes(self) -> int:
        """Bytes copied."""
        return self.target.nbytes

    @property
    def copy_engine(self) -> Direction | None:
        """One copy at a time per direction."""
        return self.name

    def operands(self, memory: DeviceMemory) -> list[Any]:
        """Both sides as flat bytes. Raises IllegalAccess."""
        return [_flat(memory, self.target), _flat(memory, self.source)]

    def duration_ns(self, spec: SimulatedSpec, operands: list[Any]) -> int:
        """Bytes over the rate of the direction, at least 1 ns."""
        rates = {"HtoD": spec.h2d_bytes_per_ns, "DtoH": spec.d2h_bytes_per_ns, "DtoD": spec.d2d_bytes_per_ns}
        return max(1, self.nbytes // rates[self.name])

    def run(self, operands: list[Any]) -> None:
        """Copy."""
        operands[0][:] = operands[1]

    def node_info(self, index: int) -> NodeInfo:
        """What the node says of itself."""
        return NodeInfo(index, "memcpy", "memcpy", nbytes=self.nbytes, detail=_ENDPOINTS[self.name])

    def argument_words(self, memory: DeviceMemory) -> tuple[ArgumentWord, ...]:
        """A copy has addresses only."""
        return ()


@dataclass(frozen=True, eq=False)
class FillWork:
    """A memset of every byte."""

    target: Region
    byte: int
    kind: NodeKind = field(default="memset", init=False)

    @property
    def name(self) -> str:
        """As the timeline calls it."""
        return "memset"

    @property
    def shape(self) -> None:
        """Memsets have no launch shape."""

    @property
    def nbytes(self) -> int:
        """Bytes set."""
        return self.target.nbytes

    @property
    def copy_engine(self) -> Direction | None:
        """Memsets run beside copies."""
        return None

    def operands(self, memory: DeviceMemory) -> list[Any]:
        """The target as flat bytes. Raises IllegalAccess."""
        return [_flat(memory, self.target)]

    def duration_ns(self, spec: SimulatedSpec, operands: list[Any]) -> int:
        """Bytes over the device's copy rate, at least 1 ns."""
        return max(1, self.nbytes // spec.d2d_bytes_per_ns)

    def run(self, operands: list[Any]) -> None:
        """Fill."""
        operands[0][:] = self.byte

    def node_info(self, index: int) -> NodeInfo:
        """What the node says of itself."""
        return NodeInfo(index, "memset", "memset", nbytes=self.nbytes)

    def argument_words(self, memory: DeviceMemory) -> tuple[ArgumentWord, ...]:
        """The value."""
        return (ArgumentWord(0, 0, self.byte.to_bytes(4, sys.byteorder), is_address=False),)


Work = KernelWork | CopyWork | FillWork
_ENDPOINTS: Final = {"HtoD": f"HtoD from {PAGEABLE}", "DtoH": f"DtoH to {PAGEABLE}", "DtoD": "DtoD"}


def _word(memory: DeviceMemory, number: int, arg: Any) -> ArgumentWord:
    if isinstance(arg, Region):
        live = memory.is_live(arg.pointer)
        return ArgumentWord(number, 0, arg.pointer.to_bytes(8, sys.byteorder), is_address=live)
    return ArgumentWord(number, 0, np.asarray(arg).tobytes(), is_address=False)


def _flat(memory: DeviceMemory, side: Operand) -> HostArray:
    if isinstance(side, Region):
        return memory.view(Region(side.pointer, (side.nbytes,), np.dtype(np.uint8)))
    return side.reshape(-1).view(np.uint8)
