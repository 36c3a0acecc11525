"""Import and idle analysis of a long torch.profiler trace: cgate against HolisticTraceAnalysis.

``import_speed.py TRACE --hta-python PYTHON`` grows the trace along the time axis, then reads it with both in
turn, each time in a process of its own, and prints JSON: seconds with their spread, the ratio, peak memory.
``cpu_s`` is CPU time: the figure to look at where other work shares the machine.
``PYTHON`` is an interpreter with HolisticTraceAnalysis. Imports of packages are not in the seconds of either.
"""

import argparse
import gzip
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

OURS = """
import json, resource, sys, time
from pathlib import Path
import numpy, pandas, msgspec
from cudagraph_gate.diagnosis import diagnose
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.timeline.kineto import read_kineto
start, cpu = time.perf_counter(), time.process_time()
timeline = read_kineto(Path(sys.argv[1]))
read = time.perf_counter()
diagnosis = diagnose(timeline, NotMeasured(reason="a trace holds no untraced times"))
end, cpu = time.perf_counter(), time.process_time() - cpu
device = diagnosis.devices[0]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"parse_s": read - start, "analyse_s": end - read, "cpu_s": cpu, "peak_bytes": peak,
                  "busy_share": device.busy_ns / device.window_ns, "operations": device.operations}))
"""
HTA = """
import json, logging, resource, sys, time, warnings
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
start, cpu = time.perf_counter(), time.process_time()
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
read = time.perf_counter()
analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
end, cpu = time.perf_counter(), time.process_time() - cpu
peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
busy = analysis.get_temporal_breakdown(visualize=False)
share = 1 - float(busy["idle_time_pctg"].iloc[0]) / 100
print(json.dumps({"parse_s": read - start, "analyse_s": end - read, "cpu_s": cpu,
                  "peak_bytes": peak * 1024,
                  "busy_share": share}))
"""
EXACT_UNTIL_US = 2.0**43
"""Up to here a double holds a time in µs to the ns."""


def grown(trace: dict, times: int) -> Iterator[dict]:
    """The events of a trace ``times`` times, one after the other, each time with other correlations."""
    events = [event for event in trace["traceEvents"] if "ts" in event]
    complete = [event for event in events if event["ph"] == "X" and event["cat"] != "Trace"]
    first = min(event["ts"] for event in complete)
    span = max(event["ts"] + event["dur"] for event in complete) - first + 1000
    assert first + times * span < EXACT_UNTIL_US
    identifiers = 1 + max(event["args"].get("correlation", 0) for event in complete if "args" in event)
    yield from (event for event in trace["traceEvents"] if event["ph"] == "M")
    for copy in range(times):
        yield from (
            moved(event, round(copy * span, 3), copy * identifiers)
            for event in events
            if event["ph"] in "Xsf" and event.get("cat") != "Trace"
        )


def moved(event: dict, later_us: float, higher: int) -> dict:
    """The event at another time and with another correlation."""
    event = event | {"ts": round(event["ts"] + later_us, 3)}
    if "id" in event:
        event["id"] += higher
    arguments = event.get("args", {})
    links = {name: arguments[name] + higher for name in ("correlation", "External id") if name in arguments}
    return event | {"args": arguments | links} if arguments else event


def grow(source: Path, target: Path, times: int) -> None:
    """Write the grown trace and print what it holds."""
    trace = json.loads(gzip.decompress(source.read_bytes()))
    rest = {name: value for name, value in trace.items() if name != "traceEvents"}
    size = complete = 0
    with gzip.open(target, "wt", compresslevel=4) as file:
        size += file.write(json.dumps(rest)[:-1] + ', "traceEvents": [\n')
        for place, event in enumerate(grown(trace, times)):
            size += file.write((",\n" if place else "") + json.dumps(event, separators=(",", ":")))
            complete += event["ph"] == "X"
        size += file.write("\n]}\n")
    sys.stdout.write(json.dumps({"json_bytes": size, "complete_events": complete}))


def measured(python: str, program: str, trace: Path) -> dict:
    """What one process printed."""
    done = subprocess.run([python, "-c", program, str(trace)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    result = json.loads(done.stdout.splitlines()[-1])
    return result | {"seconds": result["parse_s"] + result["analyse_s"]}


def summary(runs: list[dict]) -> dict:
    """Median and range of the seconds, and the highest peak."""
    seconds = [run["seconds"] for run in runs]
    return {
        "seconds": round(statistics.median(seconds), 3),
        "seconds_low": round(min(seconds), 3),
        "seconds_high": round(max(seconds), 3),
        "parse_s": round(statistics.median(run["parse_s"] for run in runs), 3),
        "analyse_s": round(statistics.median(run["analyse_s"] for run in runs), 3),
        "cpu_s": round(statistics.median(run["cpu_s"] for run in runs), 3),
        "peak_bytes": max(run["peak_bytes"] for run in runs),
        "busy_share": runs[0]["busy_share"],
    }


def processor() -> str:
    """The CPU's model and how many cores this process may use."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown"
    )
    return f"{model}, {len(os.sched_getaffinity(0))} cores"


def versions(hta_python: str) -> dict:
    """Versions of what was measured and of what it rests on."""
    program = "from importlib.metadata import version as v; print(v('HolisticTraceAnalysis'), v('pandas'))"
    done = subprocess.run([hta_python, "-c", program], capture_output=True, text=True, check=True)
    hta, hta_pandas = done.stdout.split()
    ours = {
        name: importlib.metadata.version(name) for name in ("cudagraph-gate", "numpy", "pandas", "msgspec")
    }
    return ours | {"python": platform.python_version(), "hta": hta, "hta_pandas": hta_pandas}


def compare(trace: Path, hta_python: str, pairs: int, grown_by: dict) -> dict:
    """Both in turn, ``pairs`` times."""
    ours, hta = [], []
    for _ in range(pairs):
        ours.append(measured(sys.executable, OURS, trace))
        hta.append(measured(hta_python, HTA, trace))
    ratios = [theirs["seconds"] / own["seconds"] for own, theirs in zip(ours, hta, strict=True)]
    return {
        "trace": grown_by,
        "pairs": pairs,
        "ours": summary(ours),
        "hta": summary(hta),
        "ratio": round(statistics.median(ratios), 2),
        "ratio_low": round(min(ratios), 2),
        "ratio_high": round(max(ratios), 2),
        "versions": versions(hta_python),
        "cpu": processor(),
    }


def main() -> None:
    """Parse the command line, grow, compare, print."""
    parser = argparse.ArgumentParser(description="Import speed against HolisticTraceAnalysis.")
    parser.add_argument("trace", type=Path, help="a gzipped torch.profiler trace")
    parser.add_argument("--hta-python", required=True, help="interpreter that has HolisticTraceAnalysis")
    parser.add_argument("--times", type=int, default=10, help="how many times longer the trace becomes")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--grow-to", type=Path, help="only write the grown trace there")
    given = parser.parse_args()
    if given.grow_to:
        grow(given.trace, given.grow_to, given.times)
        return
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "grown.json.gz"
        # In a process of its own: a child's peak memory starts at what its parent holds.
        command = [sys.executable, __file__, str(given.trace), "--hta-python", given.hta_python]
        command += ["--times", str(given.times), "--grow-to", str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        result = compare(target, given.hta_python, given.pairs, json.loads(done.stdout))
    sys.stdout.write(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
