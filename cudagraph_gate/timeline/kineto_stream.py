"""The events of a Kineto file as a stream of lists, from bytes that may be compressed, cut off or damaged.

The array of events is cut where one event ends and the next begins, and each piece is decoded at once.
Whether the cut was right needs no scan: a piece that was cut inside a string or a nested object is no valid
JSON. Only such pieces, and those that hold a damaged event, are read event by event.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import msgspec

from cudagraph_gate.errors import EvidenceError
from cudagraph_gate.timeline.kineto_events import Event, decoder, event_of

GZIP: Final = b"\x1f\x8b"
RAW_BLOCK_BYTES: Final = 1 << 20
"""Read at once from a plain file: some thousand events, whose objects still fit into a core's own cache."""
GZIP_BLOCK_BYTES: Final = 1 << 20
"""Read at once from a compressed file."""
UNZIPPED_BYTES: Final = 8 << 20
"""Decompressed at once: long enough beside the decoding of one block that the thread which does it, and waits
for the interpreter between two of them, stays ahead."""
LARGEST_HEAD_BYTES: Final = 64 << 20
"""What stands before the events is some kB; a file without events is not read to its end."""
LARGEST_EVENT_BYTES: Final = 256 << 20
"""An event that does not end within this is taken for damage."""

INNER_BOUNDARIES: Final = 64
"""So many places within one event may look like the beginning of the next one."""

UNREADABLE: Final = "events are no valid JSON"
NOT_UTF8: Final = "events hold bytes that are no UTF-8"

_EVENTS_KEY: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
_BASE: Final = re.compile(rb'"baseTimeNanoseconds"\s*:\s*"?(\d{1,19})"?\s*[,}]')
_BETWEEN: Final = re.compile(r"[\s,]*")
_NEXT_EVENT: Final = re.compile(r'\}\s*,\s*(?=\{\s*"(?:ph|cat|name|pid|tid|ts)"\s*:)')
_LAST_EVENT: Final = re.compile(r"\}\s*(?=\]\s*(?:[,}]|$))")
_KINDS: Final = (
    (re.compile(rb'"nodes"\s*:'), "a PyTorch execution trace (nodes, no traceEvents)"),
    (re.compile(rb'"resourceSpans"\s*:'), "an OpenTelemetry trace"),
)


class EventStream:
    """Reads one file once: iterate over it, then look at ``lost``, ``ending`` and ``base_ns``.

    A plain file is read ``block_bytes`` at a time. Raises EvidenceError where the file can't be opened or is
    no Kineto trace.
    """

    def __init__(self, path: Path, *, block_bytes: int = RAW_BLOCK_BYTES) -> None:
        self._path = path
        self._block_bytes = block_bytes
        self._decoder = decoder()
        self.lost: Counter[str] = Counter()
        """Events that could not be read, by reason."""
        self.ending = ""
        """Why the file ended early; empty if it did not."""
        self.base_ns = 0
        """``baseTimeNanoseconds``: what the file's times count from."""

    def __iter__(self) -> Iterator[list[Event]]:
        source = _cut(_ahead(self._blocks()), self._block_bytes)
        head, buffer = self._head(source)
        ended, used = False, 1
        while not ended:
            more = _at_least(source, len(buffer))
            last = not more or len(buffer) > LARGEST_EVENT_BYTES
            if last and not used:
                break
            events, used = self._decoded(buffer, more)
            if used:
                buffer = more[used:]
            else:
                buffer += more
                events, used, ended = self._salvage(buffer, last)
                buffer = buffer[used:]
            if events:
                yield events
        if not ended:
            self.ending = self.ending or "the file ends inside the array of events"
        self.base_ns = _base(head, buffer + b"".join(source) if ended else b"")

    # --- bytes ------------------------------------------------------------------------------------
    def _blocks(self) -> Iterator[bytes]:
        try:
            with self._path.open("rb") as file:
                zipped = file.read(2) == GZIP
                file.seek(0)
                yield from self._unzipped(file) if zipped else iter(lambda: file.read(self._block_bytes), b"")
        except OSError as error:
            raise EvidenceError(f"can't read the trace ({error.strerror})", where=str(self._path)) from error

    def _unzipped(self, file: Any) -> Iterator[bytes]:
        unzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
        while data := file.read(GZIP_BLOCK_BYTES):
            while data:
                try:
                    yield unzip.decompress(data, UNZIPPED_BYTES)
                except zlib.error:
                    self.ending = "the gzip stream is damaged"
                    return
                data = unzip.unused_data or unzip.unconsumed_tail
                if unzip.eof and data:
                    # Several gzip members may follow each other; whatever else follows is padding.
                    if not data.startswith(GZIP):
                        return
                    unzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
        if not unzip.eof:
            self.ending = "the gzip stream is cut off"

    # --- JSON -------------------------------------------------------------------------------------
    def _head(self, source: Iterator[bytes]) -> tuple[bytes, bytes]:
        """What stands before the array of events, and the bytes after its opening bracket."""
        head = b""
        while more := _at_least(source, len(head)):
            head += more
            start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
            if start.startswith(b"["):
                return b"", start[1:]
            for found in _EVENTS_KEY.finditer(head):
                if _is_top_level(head[: found.start()]):
                    return head[: found.start()], head[found.end() :]
            if len(head) > LARGEST_HEAD_BYTES:
                break
        raise EvidenceError(f"no torch.profiler trace: {self._what(head)}", where=str(self._path))

    def _what(self, head: bytes) -> str:
        if not head.strip():
            return self.ending or "the file is empty"
        for pattern, kind in _KINDS:
            if pattern.search(head):
                return kind
        if head.startswith(b"SQLite format 3"):
            return "an SQLite database"
        if not head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
            return "not JSON"
        return f"no array traceEvents in it{'; ' + self.ending if self.ending else ''}"

    def _decoded(self, buffer: bytes, more: bytes) -> tuple[list[Event], int]:
        """Events of ``buffer`` and the front of ``more``, and the bytes taken of it; 0 if that fails."""
        end, following = _last_boundary(more)
        if not end:
            return [], 0
        try:
            return self._decoder.decode(b"".join((b"[", buffer, memoryview(more)[:end], b"]"))), following
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return [], 0

    def _salvage(self, buffer: bytes, last: bool) -> tuple[list[Event], int, bool]:
        """The same event by event: a damaged one costs itself only."""
        text = buffer.decode("utf-8", "surrogateescape")
        events: list[Event] = []
        place, ended, damaged = 0, False, False
        while (place := _skip(text, place)) < len(text):
            # Behind damage a bracket may be one within an event.
            if text[place] == "]" and not (damaged and _NEXT_EVENT.search(text, place)):
                ended = True
                break
            try:
                found = _value_at(text, place)
            except _UnfinishedError:
                if not last:
                    break
                found = None
            if found is not None:
                events.append(self._event(found[0]))
                place = found[1]
                continue
            following = _resume(text, place, last)
            if following is None:
                break
            self.lost[UNREADABLE] += not damaged or text[place] != "]"
            damaged, place = True, following
        used = len(text[: place + ended].encode("utf-8", "surrogateescape"))
        return events, used, ended

    def _event(self, raw: object) -> Event:
        event = event_of(raw)
        if "\ufffd" in event.name:
            self.lost[NOT_UTF8] += 1
        return event


_JSON: Final = json.JSONDecoder()


class _UnfinishedError(Exception):
    """The text ends inside a value."""


def _ahead(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The same blocks, the next one made while the last is used: decompression takes no Python time."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = pool.submit(next, blocks, None)
            yield block


def _cut(blocks: Iterator[bytes], size: int) -> Iterator[bytes]:
    """The same bytes in blocks of ``size`` at most."""
    for block in blocks:
        yield from (block[first : first + size] for first in range(0, len(block), size))


def _at_least(source: Iterator[bytes], wanted: int) -> bytes:
    """At least one block and ``wanted`` bytes: what is pending doubles, so long events cost no more."""
    parts: list[bytes] = []
    size = 0
    for block in source:
        parts.append(block)
        size += len(block)
        if size and size >= wanted:
            break
    return b"".join(parts)


def _last_boundary(buffer: bytes) -> tuple[int, int]:
    """Where the last event that another one follows ends, and where that one begins; (0, 0) if none does."""
    end = len(buffer)
    while (place := buffer.rfind(b"}", 0, end)) > 0:
        after = buffer[place + 1 : place + 200].lstrip()
        if after.startswith(b","):
            following = after[1:].lstrip()
            if following.startswith(b"{"):
                return place + 1, buffer.index(b"{", place + 1)
        end = place
    return 0, 0


def _is_top_level(head: bytes) -> bool:
    """Whether a key that follows ``head`` is one of the outermost object."""
    text = head.decode("utf-8", "replace").lstrip("\ufeff").rstrip().removesuffix(",")
    try:
        json.loads(text + "}")
    except (ValueError, RecursionError):
        return False
    return True


def _skip(text: str, place: int) -> int:
    found = _BETWEEN.match(text, place)
    return found.end() if found else place


def _value_at(text: str, place: int) -> tuple[object, int] | None:
    """The JSON value at ``place`` and where it ends; None if there is none. Raises _UnfinishedError.

    Parsed up to where the next event seems to begin, and further where that turns out to lie in the value: an
    error costs Python the counting of all lines before it, which must not be those of the whole text.
    """
    stops = (found.start() + 1 for found in _NEXT_EVENT.finditer(text, place))
    for stop in chain(islice(stops, INNER_BOUNDARIES), [len(text)]):
        piece = text[place:stop]
        try:
            value, length = _JSON.raw_decode(piece)
        except RecursionError:
            return None
        except json.JSONDecodeError as error:
            if error.pos < len(piece) - 2 and not error.msg.startswith("Unterminated string"):
                return None
            continue
        return value, place + length
    raise _UnfinishedError


def _resume(text: str, place: int, last: bool) -> int | None:
    """Where to go on after what can't be read: at the next event, or at the end of the last one."""
    found = _NEXT_EVENT.search(text, place) or (_LAST_EVENT.search(text, place) if last else None)
    return found.end() if found else None


def _base(head: bytes, tail: bytes) -> int:
    # A name that holds this text would be in quotes that are escaped, so the pattern can't fit it.
    found = _BASE.search(tail) or _BASE.search(head)
    return int(found.group(1)) if found else 0
