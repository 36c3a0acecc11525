"""How well replay times are predicted: reads run folders of ``cgate run`` and prints JSON or a table.

Usage: prediction.py RUN_FOLDER... [--table]. A replay is measured as the median graph request without the
median copy of its inputs; it is predicted from the timeline of the normal path alone.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

from cudagraph_gate import pipeline
from cudagraph_gate.evidence import open_run
from cudagraph_gate.gates.latency import compare_paths
from cudagraph_gate.gates.trial_view import view_trial
from cudagraph_gate.model import NotMeasured

HEAD = ("workload", "recorded operations", "graph nodes", "predicted µs", "measured µs", "error", "note")


def row(folder: Path) -> dict:
    """Prediction and measurement of one run; what is missing is said in ``note``."""
    evidence = pipeline.collect_evidence(open_run(folder))
    found = {"workload": Path(evidence.workload).stem, "note": ""}
    segments = evidence.diagnosis.segments
    if isinstance(segments, NotMeasured) or not segments or isinstance(segments[0].prediction, NotMeasured):
        return found | {"note": "no segment is predicted"}
    prediction = segments[0].prediction
    found |= {
        "operations": segments[0].operations,
        "predicted_ns": prediction.replay_ns,
        "predicted_low_ns": prediction.replay_low_ns,
        "predicted_high_ns": prediction.replay_high_ns,
        "requests_have_more_parts": len(segments) > 1,
    }
    target = view_trial(evidence).target
    paths = compare_paths(target)
    if isinstance(paths, NotMeasured):
        return found | {"note": paths.reason}
    measured = paths.p50.graph_ns - (paths.copy_in_ns if isinstance(paths.copy_in_ns, int) else 0)
    nodes = target.nodes
    return found | {
        "nodes": nodes.nodes if nodes else None,
        "measured_ns": measured,
        "error": prediction.replay_ns / measured - 1,
        "fingerprint": evidence.fingerprint.digest,
    }


def microseconds(time_ns: int | None) -> str:
    """Whole µs, or a dash."""
    return "–" if time_ns is None else f"{time_ns / 1000:,.0f}"


def table(rows: list[dict]) -> str:
    """The rows as Markdown."""
    lines = [HEAD, ("---",) * len(HEAD)]
    for found in rows:
        times = [
            f"{found[name] / 1000:,.0f}" if name in found else "–" for name in ("predicted_ns", "measured_ns")
        ]
        error = f"{found['error']:+.1%}" if "error" in found else "–"
        counts = (str(found.get("operations", "–")), str(found.get("nodes", "–")))
        lines.append((found["workload"], *counts, *times, error, found["note"]))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    """Read the folders and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--table", action="store_true", help="Markdown instead of JSON")
    options = parser.parse_args()
    rows = [row(folder) for folder in options.folders]
    errors = [abs(found["error"]) for found in rows if "error" in found]
    summary = {"median_absolute_error": statistics.median(errors), "largest": max(errors)} if errors else {}
    text = table(rows) if options.table else json.dumps({"rows": rows, **summary}, indent=2)
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main()
