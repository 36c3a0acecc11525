"""Streams that another library made, for calls of the device port."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from cudagraph_gate.device.cuda import CudaStream
from cudagraph_gate.device.cuda_status import call, driver

_NON_BLOCKING: Final = 1
"""``CU_STREAM_NON_BLOCKING``."""
_REMEMBERED: Final = 64
"""More than the streams of one process; what is forgotten is only made again."""


class ForeignStream(CudaStream):
    """A stream by its raw pointer, 0 for the legacy default stream; whoever made it must keep it alive."""

    def __init__(self, pointer: int) -> None:
        super().__init__(driver().CUstream(pointer), blocking=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ForeignStream) and int(self.handle) == int(other.handle)

    def __hash__(self) -> int:
        return hash(int(self.handle))

    @property
    def blocking(self) -> bool:
        """Whether it synchronises with the legacy stream."""
        return not int(call(driver().cuStreamGetFlags, self.handle)) & _NON_BLOCKING


@lru_cache(maxsize=_REMEMBERED)
def foreign_stream(pointer: int) -> ForeignStream:
    """The port's stream for a raw pointer. Kept, since every replay asks for the current one."""
    return ForeignStream(pointer)
