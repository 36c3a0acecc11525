"""Adapter for CuPy: the step runs on CuPy's current stream and allocates in the graph's own memory pool.

The capture is begun and ended on the device port, so that the graph is ours: CuPy's own ``end_capture``
gives an executable only. It is thread-local, where CuPy's default is relaxed, so the pool must not grow in
it: the step is rehearsed on the capturing stream, which leaves the pool as large as the step needs.

Numba and raw kernels in such a step belong on ``cupy.cuda.get_current_stream().ptr``.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from cudagraph_gate.adapters.cuda_core import POISON_BYTE, ArrayAdapter, ArrayCapture, capture_on
from cudagraph_gate.adapters.foreign import wrapped
from cudagraph_gate.adapters.reachable import reachable_of
from cudagraph_gate.adapters.streams import foreign_stream
from cudagraph_gate.device import Device
from cudagraph_gate.device.port import HostArray, Stream
from cudagraph_gate.errors import NoDeviceError
from cudagraph_gate.model import Measured, NotMeasured

REHEARSALS: Final = 2
"""The first makes the pool's blocks; the second finds them free, splits them anew, and may need more."""
RESEED: Final = 20_260
"""What CuPy's global generator is seeded with: any number will do, as long as it is the same again."""
DRAWN: Final = 256
"""Random numbers drawn to see that the generator works: two such draws never agree by chance."""


class GraphPool:
    """A memory pool for one graph, and the stream that its blocks belong to: CuPy keeps them by stream."""

    def __init__(self, cupy: Any, stream: Any, retired: RetiredPools) -> None:
        self._cupy = cupy
        self._pool = cupy.cuda.MemoryPool()
        self.stream = stream
        weakref.finalize(self, retired.take, self._pool).atexit = False

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """CuPy allocates here and works on the pool's stream, in this thread."""
        with self.stream, self._cupy.cuda.using_allocator(self._pool.malloc):
            yield

    @property
    def nbytes(self) -> int:
        """Device memory that it holds."""
        return int(self._pool.total_bytes())


class RetiredPools:
    """Pools whose graphs are gone, until their arrays are, too.

    A pool that is dropped while arrays of it live never gives its memory back (CuPy 14: its chunks refer to
    each other and are not collected). So each is kept until all of it is free.
    """

    def __init__(self) -> None:
        self._pools: list[Any] = []

    def take(self, pool: Any) -> None:
        """Keep a ``cupy.cuda.MemoryPool`` whose graph is gone; frees nothing: anything may capture now."""
        self._pools.append(pool)

    def sweep(self) -> None:
        """Free what no array holds, and drop the pools of which nothing is left."""
        for pool in self._pools:
            pool.free_all_blocks()
        self._pools = [pool for pool in self._pools if pool.total_bytes()]

    @property
    def nbytes(self) -> int:
        """Device memory that they hold."""
        return sum(int(pool.total_bytes()) for pool in self._pools)


class CupyAdapter(ArrayAdapter):
    """Arrays of CuPy 14, and beside them whatever the array adapter takes."""

    name = "cupy"

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        if device.simulated:
            raise NoDeviceError(
                "a CuPy workload needs a CUDA GPU",
                hint="run it on a machine with an NVIDIA GPU; the simulated device runs portable workloads",
            )
        import cupy

        self._cupy: Any = cupy
        self._cupy_stream: Any = None
        self._retired = RetiredPools()
        self._pools: weakref.WeakSet[GraphPool] = weakref.WeakSet()
        self._generators: dict[int, Any] = {}
        """Generators of the steps seen so far; each holds its state in device memory."""

    # --- arrays -----------------------------------------------------------------------------------
    def is_device_array(self, value: Any) -> bool:
        """Any CuPy array, and what the array adapter takes."""
        return isinstance(value, self._cupy.ndarray) or super().is_device_array(value)

    def static_like(self, value: Any) -> Any:
        """An array of the same kind, shape and order of axes with a copy of the values."""
        if not isinstance(value, self._cupy.ndarray):
            return wrapped(self._device, value, super().static_like(value))
        target = self._cupy.empty_like(value)
        self.copy_into(target, value)
        return target

    def copy_into(self, target: Any, source: Any) -> None:
        """Enqueue a copy on CuPy's current stream."""
        if not isinstance(target, self._cupy.ndarray):
            super().copy_into(target, source)
            return
        values = self._cupy.asarray(source)
        if (target.shape, target.dtype) != (values.shape, values.dtype):
            raise ValueError(f"{values.dtype}{values.shape} does not fit {target.dtype}{target.shape}")
        self._cupy.copyto(target, values)

    def poison(self, value: Any) -> None:
        """Enqueue overwriting every byte, also of an array with gaps."""
        if not isinstance(value, self._cupy.ndarray) or value.flags.c_contiguous:
            super().poison(value)
            return
        item = np.frombuffer(bytes([POISON_BYTE]) * value.dtype.itemsize, value.dtype)[0]
        value.fill(item)

    def to_host(self, value: Any) -> HostArray:
        """The values on the host."""
        if not isinstance(value, self._cupy.ndarray):
            return super().to_host(value)
        self._device.synchronize()
        return np.asarray(self._cupy.asnumpy(value))

    def same_values(self, left: Any, right: Any) -> bool:
        """On the device, of the bytes."""
        cupy = self._cupy
        if not (isinstance(left, cupy.ndarray) and isinstance(right, cupy.ndarray)):
            return super().same_values(left, right)
        if (left.shape, left.dtype) != (right.shape, right.dtype):
            return False
        one, other = (cupy.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in (left, right))
        return bool(cupy.array_equal(one, other))

    def address(self, value: Any) -> int:
        """``data.ptr``."""
        return int(value.data.ptr) if isinstance(value, self._cupy.ndarray) else super().address(value)

    def nbytes(self, value: Any) -> int:
        """Size in bytes."""
        return int(value.nbytes) if isinstance(value, self._cupy.ndarray) else super().nbytes(value)

    # --- streams ----------------------------------------------------------------------------------
    def current_stream(self) -> Stream:
        """CuPy's; the legacy default stream unless the application chose another."""
        return foreign_stream(int(self._cupy.cuda.get_current_stream().ptr))

    def new_stream(self) -> Any:
        """A non-blocking ``cupy.cuda.Stream``."""
        return self._cupy.cuda.Stream(non_blocking=True)

    @contextmanager
    def on_stream(self, stream: Any) -> Iterator[None]:
        """``with stream``."""
        with stream:
            yield

    # --- capture ----------------------------------------------------------------------------------
    def capture(self, step: Callable[..., Any], inputs: Sequence[Any]) -> ArrayCapture:
        """Run the step on a stream and in a pool of their own, then capture it there, thread-local."""
        self._device.synchronize()
        self._retired.sweep()
        pool = GraphPool(self._cupy, self._stream_for_capture(), self._retired)
        with pool.in_use():
            for _ in range(REHEARSALS):
                step(*inputs)
            pool.stream.synchronize()
            stream = foreign_stream(int(pool.stream.ptr))
            graph, outputs = capture_on(self._device, stream, step, inputs)
        self._pools.add(pool)
        return ArrayCapture(self.current_stream, graph, outputs, memory=pool)

    def _stream_for_capture(self) -> Any:
        """One for all captures: each stream takes device memory of its own."""
        if self._cupy_stream is None:
            self._cupy_stream = self.new_stream()
        return self._cupy_stream

    def recover(self) -> None:
        """Give up the stream of the failed capture."""
        self._cupy_stream = None

    # --- random numbers and memory ------------------------------------------------------------------
    def random_state(self, step: Callable[..., Any] | None = None) -> Any:
        """Copies of the states of the ``cupy.random.Generator`` objects that ``step`` reaches.

        The generator behind ``cupy.random.rand`` and its like does not tell its state: it is seeded here,
        and seeded alike when the state is set.
        """
        if step is not None:
            found = reachable_of(step, self._cupy.random.Generator).values()
            self._generators |= {id(each): each for each in found}
        self._seed_global()
        states = [each.bit_generator._state for each in self._generators.values()]
        return tuple((state, state.copy()) for state in states)

    def set_random_state(self, state: Any) -> None:
        """Copy the states back in place, where graphs read them."""
        for target, values in state:
            self._cupy.copyto(target, values)
        self._seed_global()

    def draw_random(self) -> HostArray | None:
        """``cupy.random.rand``, if anything has used its generator."""
        if self._global_generator() is None:
            return None
        return self.to_host(self._cupy.random.rand(DRAWN))

    def _seed_global(self) -> None:
        """Seed CuPy's own generator of this GPU, if anything has used it."""
        generator = self._global_generator()
        if generator is not None:
            generator.seed(RESEED)

    def _global_generator(self) -> Any:
        """CuPy's own generator of this GPU; None if there is none yet: asking CuPy for it would make one."""
        states = getattr(self._cupy.random._generator, "_random_states", {})
        return states.get(self._cupy.cuda.get_device_id())

    def allocator_bytes(self) -> Measured:
        """What CuPy's current allocator and the graphs' pools hold."""
        pool: Any = getattr(self._cupy.cuda.get_allocator(), "__self__", None)
        if not hasattr(pool, "total_bytes"):
            return NotMeasured(reason="CuPy's current allocator does not tell how much it holds")
        self._retired.sweep()
        own = sum(one.nbytes for one in self._pools) + self._retired.nbytes
        return int(pool.total_bytes()) + own

    def occupied_bytes(self) -> Measured:
        """What arrays use of CuPy's current allocator, and all of the graphs' pools."""
        held = self.allocator_bytes()
        if isinstance(held, NotMeasured):
            return held
        pool: Any = self._cupy.cuda.get_allocator().__self__  # it has one: it told how much it holds
        return held - int(pool.free_bytes())

    def free_memory(self) -> Sequence[tuple[int, int]]:
        """CuPy does not tell where the free blocks of its pools lie."""
        return ()

    def release_cached(self) -> None:
        """Free all blocks of CuPy's default pool and of retired graphs' pools that no array holds."""
        self._retired.sweep()
        self._cupy.get_default_memory_pool().free_all_blocks()

    def release_workspaces(self) -> None:
        """CuPy keeps those of a library with its handle."""

    @contextmanager
    def keeping_arrays(self) -> Iterator[None]:
        """What the allocator that is current at the beginning hands out."""
        allocate, kept = self._cupy.cuda.get_allocator(), []

        def keeping(nbytes: int) -> Any:
            memory = allocate(nbytes)
            kept.append(memory)
            return memory

        with self._cupy.cuda.using_allocator(keeping):
            yield
