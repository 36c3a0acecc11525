"""Pools of CuPy whose graphs are gone give their memory back, but only when their arrays are gone, too."""

from __future__ import annotations

from dataclasses import dataclass

from cudagraph_gate.adapters.cupy import RetiredPools


@dataclass
class Pool:
    """``cupy.cuda.MemoryPool`` as far as it is asked: bytes that arrays hold, and bytes that are free."""

    held: int
    free: int

    def free_all_blocks(self) -> None:
        self.free = 0

    def total_bytes(self) -> int:
        return self.held + self.free


def test_a_pool_is_kept_until_no_array_of_it_lives() -> None:
    retired, pool = RetiredPools(), Pool(held=512, free=1024)
    retired.take(pool)
    assert retired.nbytes == 1536
    retired.sweep()
    assert (retired.nbytes, pool.free) == (512, 0)
    pool.held, pool.free = 0, 512  # the last array gave its block back
    retired.sweep()
    assert retired.nbytes == 0
    pool.held = 4096  # nobody's business any more
    assert retired.nbytes == 0


def test_taking_a_pool_frees_nothing_since_a_capture_may_be_going_on() -> None:
    retired, pool = RetiredPools(), Pool(held=0, free=64)
    retired.take(pool)
    assert pool.free == 64
