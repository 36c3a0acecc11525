"""How fast an Nsight Systems export is read: rows a second and peak memory, as JSON.

    python docs/measurements/sqlite_speed.py [--rows 1000000] [--runs 5]

Makes a database of so many kernels and as many runtime calls, in the layout of schema 3.25. Each run reads it
in a fresh process. ``sqlite3`` is the same columns of the same tables by Python's own module, as bare arrays:
what the import would cost at least if it were written that way.
"""

from __future__ import annotations

import argparse
import json
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

KERNEL: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
RUNTIME: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
KERNEL_COLUMNS: Final = """
    start end deviceId contextId greenContextId streamId correlationId globalPid demangledName shortName
    mangledName launchType cacheConfig registersPerThread gridX gridY gridZ blockX blockY blockZ
    staticSharedMemory dynamicSharedMemory localMemoryPerThread localMemoryTotal gridId sharedMemoryExecuted
    graphNodeId sharedMemoryLimitConfig qmdBulkReleaseDone qmdPreexitDone qmdLastCtaDone graphId clusterX
    clusterY clusterZ clusterSchedulingPolicy maxPotentialClusterSize maxActiveClusters
"""
RUNTIME_COLUMNS: Final = "start end eventClass globalTid correlationId nameId returnValue callchainId"
READ: Final = {
    KERNEL: """
        start end deviceId contextId streamId correlationId globalPid demangledName shortName gridX
        gridY gridZ blockX blockY blockZ graphNodeId graphId
    """,
    RUNTIME: "start end globalTid correlationId nameId returnValue callchainId",
}
PROCESS: Final = 0x1000_0123_4500_0000
NAMES: Final = 40
"""Distinct kernels: as many as a small model has."""
EVERY_NS: Final = 10_000


def kernels(rows: int) -> Iterator[tuple[int | None, ...]]:
    """Rows of the kernel table: one kernel of about 4 µs every 10 µs."""
    for row in range(rows):
        start = 10**9 + row * EVERY_NS
        name = 1 + row % NAMES
        first = (
            start,
            start + 4000 + row % 97,
            0,
            1,
            0,
            7 + row % 2,
            row + 1,
            PROCESS,
            name,
            name,
            name,
            1,
            1,
            16,
        )
        rest = (0, 0, 0, 24_772_608, row, 8192, None, 0, None, None, None, None, 0, 0, 0, 0, 0, 0)
        yield (*first, 4 + row % 7, 1, 1, 256, 1, 1, *rest)


def calls(rows: int) -> Iterator[tuple[int | None, ...]]:
    """Rows of the runtime table: the launch of each kernel, and what goes with it."""
    for row in range(rows):
        start = 10**9 + row * EVERY_NS - 5000
        yield (start, start + 3000, 0, PROCESS + 7, row + 1, NAMES + 1 + row % 3, 0, None)


def make(path: Path, rows: int) -> None:
    """Write the database."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA synchronous=OFF")
    db.execute("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
    texts = [f"void kernel_{number}<float>(float*)" for number in range(NAMES)]
    texts += ["cudaLaunchKernel_v7000", "cudaStreamIsCapturing_v10000", "cudaMemcpyAsync_v3020"]
    db.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(texts, 1))
    for table, named, values in ((KERNEL, KERNEL_COLUMNS, kernels), (RUNTIME, RUNTIME_COLUMNS, calls)):
        columns = named.split()
        db.execute(f"CREATE TABLE {table} ({', '.join(f'{name} INTEGER' for name in columns)})")
        db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", values(rows))
    db.commit()
    db.close()


def read_with_cgate(path: Path) -> int:
    """Import the export; returns the rows of the timeline."""
    from cudagraph_gate.timeline.nsys import read_nsys

    timeline = read_nsys(path)
    return len(timeline.operations) + len(timeline.calls)


def read_with_sqlite3(path: Path) -> int:
    """The same columns as arrays by Python's sqlite3; returns the rows."""
    db, read = sqlite3.connect(path), 0
    for table, named in READ.items():
        columns = [f"ifnull({name}, 0)" for name in named.split()]
        cursor = db.execute(f"SELECT {', '.join(columns)} FROM {table}")
        parts = []
        while rows := cursor.fetchmany(20_000):
            parts.append(np.fromiter(chain.from_iterable(rows), np.int64, len(rows) * len(columns)))
        read += len(np.concatenate(parts)) // len(columns)
    return read


READERS: Final = {"cgate": read_with_cgate, "sqlite3": read_with_sqlite3}


def measure(reader: str, path: Path) -> dict[str, float]:
    """One read in this process."""
    READERS[reader](path.with_name("small.sqlite"))  # imports and first use are no part of the rate
    began = time.perf_counter()
    rows = READERS[reader](path)
    taken = time.perf_counter() - began
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"rows": rows, "seconds": taken, "rows_per_s": rows / taken, "peak_mb": peak}


def repeated(reader: str, path: Path, runs: int) -> dict[str, Any]:
    """Several reads, each in a process of its own."""
    command = [sys.executable, __file__, "--reader", reader, "--file", str(path)]
    found = [json.loads(subprocess.check_output(command)) for _ in range(runs)]
    rates = sorted(round(run["rows_per_s"]) for run in found)
    return {
        "rows": int(found[0]["rows"]),
        "median_rows_per_s": round(statistics.median(rates)),
        "rows_per_s": rates,
        "peak_mb": round(max(run["peak_mb"] for run in found)),
    }


def processor() -> str:
    """The CPU's model name."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--reader", choices=READERS)
    parser.add_argument("--file", type=Path)
    given = parser.parse_args()
    if given.reader:
        sys.stdout.write(json.dumps(measure(given.reader, given.file)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.sqlite"
        make(path, given.rows)
        make(path.with_name("small.sqlite"), 10)
        result: dict[str, Any] = {reader: repeated(reader, path, given.runs) for reader in READERS}
        result["file_mb"] = round(path.stat().st_size / 2**20)
    versions = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    result["versions"] = versions | {"numpy": np.__version__, "pandas": pd.__version__}
    result["cpu"] = processor()
    sys.stdout.write(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
