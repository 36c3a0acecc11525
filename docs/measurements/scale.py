"""Seconds, memory and file sizes of long timelines: ``scale.py [operations ...]``, else 1, 3 and 10 million.

Makes timelines (full: one launch call for each operation; light: stamps only), saves them, and reads and
analyses each in fresh processes, several times. Prints JSON: seconds of each stage and of CPU (median, least,
most), peak resident memory, bytes on disk, and the seconds of a million operations, which stay level where
cost is linear.
"""

import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cudagraph_gate.diagnosis import diagnose
from cudagraph_gate.diagnosis.idle import idle_of_devices
from cudagraph_gate.diagnosis.submission import operations_with_submission
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.timeline.table import (
    CALL_COLUMNS,
    KERNEL,
    OPERATION_COLUMNS,
    Timeline,
    TimelineMeta,
    frame,
    load,
    save,
)

SIZES = (1_000_000, 3_000_000, 10_000_000)
REPEATS = 3
PERIOD_NS = 8_000
"""One operation each: a launch-bound loop, so that nearly every operation ends an idle interval."""
STEP = 128
"""Operations of one step, after which the host synchronises."""
KERNELS = 40
SEED = 20261201


def made(count: int, level: str) -> Timeline:
    """A timeline of ``count`` operations on two streams, in steps that repeat, with jitter."""
    random = np.random.default_rng(SEED)
    place = np.arange(count) % STEP
    begin = np.arange(count) * PERIOD_NS + random.integers(0, 1_500, count)
    call_end = begin + random.integers(1_500, 2_500, count)
    start = call_end + random.integers(200, 900, count)
    correlation = np.arange(1, count + 1)
    return Timeline(
        meta=TimelineMeta(source="made", level=level),
        operations=frame(
            OPERATION_COLUMNS,
            {
                "kind": pd.Categorical.from_codes(np.zeros(count, dtype=np.int8), [KERNEL]),
                "name": pd.Categorical.from_codes(
                    (place % KERNELS).astype(np.int8),
                    [f"void kernel_{number:02}<float>()" for number in range(KERNELS)],
                ),
                "start_ns": start,
                "end_ns": start + random.integers(1_000, 4_000, count),
                "context": np.ones(count, dtype=np.int32),
                "stream": np.where(place % 8 == 0, 13, 7).astype(np.int32),
                "process": np.full(count, 4242, dtype=np.int32),
                "correlation": correlation,
                "queued_ns": begin + 900,
                "submitted_ns": call_end,
                "grid_x": (1 + place).astype(np.int32),
                "block_x": np.full(count, 256, dtype=np.int32),
            },
        ),
        calls=_calls(begin, call_end, correlation) if level == "full" else frame(CALL_COLUMNS),
    )


def _calls(begin: np.ndarray, end: np.ndarray, correlation: np.ndarray) -> pd.DataFrame:
    count = len(begin)
    return frame(
        CALL_COLUMNS,
        {
            "name": pd.Categorical.from_codes(np.zeros(count, dtype=np.int8), ["cuLaunchKernel"]),
            "start_ns": begin,
            "end_ns": end,
            "process": np.full(count, 4242, dtype=np.int32),
            "thread": np.full(count, 77),
            "correlation": correlation,
        },
    )


def timed(stages: dict[str, float], name: str, function: Callable[[], Any]) -> Any:
    """The result of ``function``; its seconds go to ``stages``."""
    begin = time.perf_counter()
    result = function()
    stages[name] = time.perf_counter() - begin
    return result


def child(path: str, whole: bool) -> dict[str, float]:
    """Seconds and peak memory of one fresh process: load, then the whole diagnosis or its idle part alone."""
    stages: dict[str, float] = {}
    timeline = timed(stages, "load_s", lambda: load(Path(path)))
    if whole:
        timed(stages, "diagnose_s", lambda: diagnose(timeline, NotMeasured(reason="not timed")))
    else:
        operations = timed(stages, "submission_s", lambda: operations_with_submission(timeline))
        starts, ends = operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy()
        window = (int(starts.min()), int(ends.max()))
        timed(stages, "idle_s", lambda: idle_of_devices(timeline, operations, window))
    stages["total_s"] = sum(stages.values())
    stages["process_cpu_s"] = time.process_time()
    stages["peak_mb"] = peak_mb()
    return stages


def peak_mb() -> float:
    """Peak resident memory of this process alone; ``ru_maxrss`` would hold that of its parent too."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    peaks = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
    return (peaks[0] if peaks else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / 1024


def measured(path: Path, part: str) -> dict[str, dict[str, float]]:
    """Median, least and most of ``REPEATS`` fresh processes."""
    runs = [
        json.loads(subprocess.check_output([sys.executable, __file__, f"--{part}", str(path)]))
        for _ in range(REPEATS)
    ]
    return {
        name: {
            "median": round(statistics.median(run[name] for run in runs), 3),
            "least": round(min(run[name] for run in runs), 3),
            "most": round(max(run[name] for run in runs), 3),
        }
        for name in runs[0]
    }


def one(count: int, level: str, folder: Path) -> dict[str, Any]:
    """The figures of one timeline."""
    path = folder / f"{level}-{count}.parquet"
    stages: dict[str, float] = {}
    timeline = made(count, level)
    timed(stages, "save_s", lambda: save(timeline, path))
    idle, whole = measured(path, "idle"), measured(path, "whole")
    size = path.stat().st_size
    path.unlink()
    return {
        "operations": count,
        "level": level,
        "bytes_on_disk": size,
        "save_s": round(stages["save_s"], 3),
        "load_and_idle": idle,
        "load_and_diagnose": whole,
        "load_and_idle_s_per_million": round(idle["total_s"]["median"] / count * 1e6, 3),
        "load_and_diagnose_s_per_million": round(whole["total_s"]["median"] / count * 1e6, 3),
    }


def cpu_model() -> str:
    """Model name of the first CPU."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} × {names[0]}" if names else platform.processor()


def main(sizes: tuple[int, ...]) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [one(count, level, Path(folder)) for level in ("full", "light") for count in sizes]
    versions = {"python": platform.python_version(), "numpy": np.__version__, "pandas": pd.__version__}
    sys.stdout.write(
        json.dumps({"cpu": cpu_model(), **versions, "repeats": REPEATS, "rows": rows}, indent=1) + "\n"
    )


if __name__ == "__main__":
    if sys.argv[1:2] in (["--idle"], ["--whole"]):
        sys.stdout.write(json.dumps(child(sys.argv[2], whole=sys.argv[1] == "--whole")))
    else:
        main(tuple(int(size) for size in sys.argv[1:]) or SIZES)
