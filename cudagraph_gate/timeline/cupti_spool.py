"""Completed CUPTI buffers on their way to a file: a recording of any length in bounded memory.

CUPTI fills buffers that are lent to it. A writer thread appends those that come back to a temporary file,
zeroes them (CUPTI would do that in the thread that submits work) and lends them again.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any, Final

import numpy as np
import pandas as pd

from cudagraph_gate.errors import EvidenceError
from cudagraph_gate.timeline.cupti_buffers import (
    WORD_BYTES,
    Bytes,
    LayoutChoice,
    SizeOf,
    gather,
    record_offsets,
)
from cudagraph_gate.timeline.cupti_kinds import KIND_MARKER, MARKER_END, POINTERS, TEXT_FIELDS
from cudagraph_gate.timeline.cupti_rows import text_at

BUFFER_BYTES: Final = 8 * 1024 * 1024
"""CUPTI's recommended range is 1 to 10 MB; 256 MB cost 0.15 s at the first enable on the H200. One of this
size holds half a second of the densest eager loops, so that callbacks are rare."""
READY_BUFFERS: Final = 3
"""Lent without allocating: one each for the submitting thread, CUPTI's own, and the writer."""
MOST_WAITING: Final = 8
"""Buffers that may wait for the writer: 64 MiB, some seconds of a slow disk."""
PATIENCE_S: Final = 2.0
"""How long a thread waits for the writer before CUPTI has to drop records. CUPTI reports the wait as its own
overhead, so it is not taken for the program's time."""

Write = Callable[[int, memoryview, int], int]
"""``os.pwrite``: (descriptor, data, offset) -> bytes written, perhaps not all."""


class Names:
    """Texts that records point to, read as soon as a buffer comes back: later CUPTI may have let them go."""

    def __init__(
        self,
        layouts: Mapping[str, np.dtype[Any]],
        size_of: SizeOf,
        read_text: Callable[[int], str] = text_at,
    ) -> None:
        self._layout = LayoutChoice(layouts)
        self._size_of = size_of
        self._read_text = read_text
        self._sizes: dict[int, int] = {}
        self._known: dict[int, str] = {0: ""}
        self._open: dict[int, str] = {}
        self.counted_range = ""
        """Name of the ranges whose ends are counted."""
        self.ended = 0
        """Ranges of that name that have ended."""

    def read(self, buffer: Bytes, valid_bytes: int) -> int:
        """Read the new texts of one buffer; returns how many records it holds."""
        count = 0
        for kind, places in record_offsets(buffer, valid_bytes, self._sizes, self._size_of).items():
            count += len(places)
            pointers = POINTERS.get(kind)
            layout = self._layout(pointers.stem, self._sizes.get(kind)) if pointers else None
            if pointers is None or layout is None:
                continue
            found, _ = gather(buffer[:valid_bytes], places, layout, pointers.fields)
            for field in TEXT_FIELDS & found.keys():
                self._learn(found[field])
            if kind == KIND_MARKER and self.counted_range:
                self._count(found)
        return count

    def text(self, pointer: int) -> str:
        """The text at an address that some record points to."""
        if pointer not in self._known:
            self._known[pointer] = self._read_text(pointer)
        return self._known[pointer]

    def _learn(self, pointers: np.ndarray[Any, Any]) -> None:
        for pointer in pd.unique(pointers).tolist():
            self.text(pointer)

    def _count(self, markers: Mapping[str, np.ndarray[Any, Any]]) -> None:
        for number, flags, name in zip(
            *(markers[field].tolist() for field in ("id", "flags_", "name")), strict=True
        ):
            if flags & MARKER_END:
                self.ended += self._open.pop(number, "") == self.counted_range
            elif self.text(name) == self.counted_range:
                self._open[number] = self.counted_range


class Spool:
    """One recording's buffers. ``problems`` says what was lost, ``dropped`` how many records that were.

    Implements :class:`~cudagraph_gate.timeline.cupti_library.BufferSink`. ``folder`` takes the file (the
    system's temporary folder if None).
    """

    def __init__(
        self,
        names: Names,
        folder: Path | None = None,
        *,
        buffer_bytes: int = BUFFER_BYTES,
        write: Write = os.pwrite,
    ) -> None:
        self._names = names
        self._buffer_bytes = buffer_bytes
        self._pwrite = write
        self._memory: dict[int, Bytes] = {}
        self._free: SimpleQueue[int] = SimpleQueue()
        self._filled: SimpleQueue[tuple[int, int] | threading.Event | None] = SimpleQueue()
        self._file = _unnamed_file(folder)
        self._lent: set[int] = set()
        self._chunks: list[tuple[int, int]] = []
        """Offset in the file and valid bytes of each buffer, in the order in which they came back."""
        self._written = 0
        self.recorded_bytes = 0
        self.dropped = 0
        self.problems: list[str] = []
        for _ in range(READY_BUFFERS):
            self._free.put(self._allocate())
        self._writer = threading.Thread(target=self._write_all, name="cgate-spool", daemon=True)
        self._writer.start()

    def lend(self) -> tuple[int, int]:
        """A zeroed buffer's address and size; (0, 0) when the writer is too far behind."""
        address = self._next()
        if not address:
            return 0, 0
        self._lent.add(address)
        return address, self._buffer_bytes

    def _next(self) -> int:
        try:
            return self._free.get_nowait()
        except Empty:
            pass
        if self._filled.qsize() < MOST_WAITING:
            return self._allocate()
        try:
            return self._free.get(timeout=PATIENCE_S)
        except Empty:
            return 0

    def take(self, address: int, valid_bytes: int) -> None:
        """A lent buffer comes back."""
        self.recorded_bytes += valid_bytes
        self._lent.discard(address)
        self._filled.put((address, valid_bytes))

    def miss(self) -> None:
        """Count lent buffers with records that did not come back, when CUPTI has given back all it has."""
        # Buffers are lent zeroed, and a record begins with its kind, which is never 0.
        missed = sum(bool(self._memory[address][:WORD_BYTES].any()) for address in self._lent)
        if missed:
            self.dropped += missed
            self.problems.append(
                f"{missed} record buffers did not come back: another profiler of this process took them"
            )

    def settle(self) -> None:
        """Wait until everything that came back so far lies in the file."""
        settled = threading.Event()
        self._filled.put(settled)
        settled.wait()

    def buffers(self) -> Iterator[tuple[Bytes, int]]:
        """Every buffer with its valid bytes, in the order in which they came back, one at a time.

        Each is valid until the next one is asked for.
        """
        memory: Bytes = np.empty(max((length for _, length in self._chunks), default=0), np.uint8)
        for offset, length in self._chunks:
            os.preadv(self._file.fileno(), [memory[:length].data], offset)
            yield memory, length

    def close(self) -> None:
        """Give the file up and end the writer. A buffer that CUPTI still holds lives until it comes back."""
        self._filled.put(None)
        self._writer.join()
        self._file.close()

    def _allocate(self) -> int:
        memory: Bytes = np.empty(self._buffer_bytes, np.uint8)
        memory.fill(0)  # touches every page now, not while records are written
        self._memory[memory.ctypes.data] = memory
        return memory.ctypes.data

    def _write_all(self) -> None:
        while (item := self._filled.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
                continue
            address, valid_bytes = item
            memory = self._memory[address]
            if valid_bytes:
                self._write(memory, valid_bytes)
                memory.fill(0)
            self._free.put(address)

    def _write(self, memory: Bytes, valid_bytes: int) -> None:
        try:
            count = self._names.read(memory, valid_bytes)
        except Exception as error:  # noqa: BLE001  (a writer that ended would leave the recording waiting)
            self.dropped += 1
            self.problems.append(f"a buffer of records can't be read ({error})")
            return
        if self.problems:  # what follows a hole can't be told from what was complete
            self.dropped += count
            return
        try:
            self._write_whole(memory[:valid_bytes].data)
        except OSError as error:
            self.dropped += count
            self.problems.append(f"the recording ended early: it can't be written ({error.strerror})")
            return
        self._chunks.append((self._written, valid_bytes))
        self._written += valid_bytes

    def _write_whole(self, data: memoryview) -> None:
        offset = self._written
        while data:
            written = self._pwrite(self._file.fileno(), data, offset)
            data, offset = data[written:], offset + written


def _unnamed_file(folder: Path | None) -> IO[bytes]:
    try:
        return tempfile.TemporaryFile(dir=folder)
    except OSError as error:
        raise EvidenceError(
            f"can't write the recording ({error.strerror})",
            where=str(folder or tempfile.gettempdir()),
            hint="make room, or run elsewhere",
        ) from error
