"""Read a trace that another tool recorded. What the file holds tells which reader fits, not its name."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Final

from cudagraph_gate.errors import EvidenceError
from cudagraph_gate.timeline.nsys_database import EXPORT_AGAIN, MAGIC
from cudagraph_gate.timeline.table import Timeline

GZIP: Final = b"\x1f\x8b"
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
LOOKED_AT: Final = 4096
"""So much of a file is looked at: JSON may begin with blank lines."""
READABLE: Final = "cgate reads torch.profiler JSON (.json, .json.gz) and Nsight Systems SQLite (.sqlite)"
RANK_PATTERNS: Final = ("*.json", "*.json.gz")

FOREIGN: Final = {
    b"PAR1": ("a Parquet file", EXPORT_AGAIN),
    b"\x89HDF": ("an HDF5 file", EXPORT_AGAIN),
    b"PK\x03\x04": ("a ZIP archive", "unpack it first"),
    b"\x28\xb5\x2f\xfd": ("compressed with zstd", "unpack it first: zstd -d"),
    b"BZh": ("compressed with bzip2", "unpack it first: bunzip2"),
    b"\xfd7zXZ": ("compressed with xz", "unpack it first: unxz"),
}
"""First bytes of files that are met where a trace should be; what they are, and what to do."""
UNEXPORTED: Final = {
    ".nsys-rep": "an Nsight Systems report that is not exported",
    ".qdrep": "an Nsight Systems report that is not exported",
    ".qdstrm": "an Nsight Systems recording that is not imported",
    ".ncu-rep": "a report of Nsight Compute, which holds no timeline",
}
"""Nsight's own formats have no documented content: here the name must do."""


def read_trace(path: Path) -> Timeline:
    """The timeline of a trace file, or of a folder with one Kineto file a rank.

    Raises EvidenceError with one clear line for anything that is no such trace.
    """
    if path.is_dir():
        return _read_folder(path)
    start = _start_of(path)
    if start.startswith(MAGIC):
        from cudagraph_gate.timeline.nsys import read_nsys

        return read_nsys(path)
    content = _unpacked(start, path)
    if _is_json(content):
        from cudagraph_gate.timeline.kineto import read_kineto

        return read_kineto(path)
    what, hint = _described(path, content)
    raise EvidenceError(what, where=str(path), hint=hint)


def _read_folder(path: Path) -> Timeline:
    if not any(next(path.glob(pattern), None) for pattern in RANK_PATTERNS):
        raise EvidenceError("the folder holds no .json or .json.gz file", where=str(path), hint=READABLE)
    from cudagraph_gate.timeline.kineto_ranks import read_ranks

    return read_ranks(path)


def _start_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            start = file.read(LOOKED_AT)
    except OSError as error:
        raise EvidenceError(f"can't read the trace ({error.strerror})", where=str(path)) from error
    if not start:
        raise EvidenceError("the trace is empty", where=str(path))
    return start


def _unpacked(start: bytes, path: Path) -> bytes:
    if not start.startswith(GZIP):
        return start
    try:
        return zlib.decompressobj(wbits=16 + zlib.MAX_WBITS).decompress(start, LOOKED_AT)
    except zlib.error as error:
        raise EvidenceError(f"the gzip file is damaged ({error})", where=str(path)) from error


def _is_json(start: bytes) -> bool:
    text = start.removeprefix(BYTE_ORDER_MARK).lstrip()
    return text[:1] in (b"{", b"[")


def _described(path: Path, start: bytes) -> tuple[str, str]:
    """What a file that is no trace seems to be, and what to do."""
    if path.suffix.lower() in UNEXPORTED:
        hint = READABLE if path.suffix.lower() == ".ncu-rep" else EXPORT_AGAIN
        return UNEXPORTED[path.suffix.lower()], hint
    for magic, described in FOREIGN.items():
        if start.startswith(magic):
            return described
    kind = "a binary file of an unknown kind" if b"\x00" in start else "a text file that is not JSON"
    return kind, READABLE
