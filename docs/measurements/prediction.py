"""How well replay times are predicted: ``prediction.py [--table] RUN_FOLDER...``, folders of ``cgate run``.

A replay is measured as the median graph request without the median copy of its inputs, in alternating blocks;
it is predicted from the timeline of the normal path alone. Prints JSON, or a table.
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

HEAD = ("workload, shape", "operations", "graph nodes", "predicted µs (interval)", "measured µs", "error")


def row(folder: Path) -> dict:
    """Prediction and measurement of one run; what keeps it from being compared is said in ``note``."""
    evidence = pipeline.collect_evidence(open_run(folder))
    diagnosis, target = evidence.diagnosis, view_trial(evidence).target
    found = {
        "workload": Path(evidence.workload).stem,
        "shape": evidence.profile.shape,
        "operations": diagnosis.requests.operations,
        "segments": len(diagnosis.segments),
        "blocking_calls": diagnosis.requests.blocking_calls,
        "fingerprint": evidence.fingerprint.digest,
    }
    prediction = diagnosis.prediction
    if isinstance(prediction, NotMeasured):
        return found | {"note": prediction.reason}
    found |= {
        "predicted_ns": prediction.replay_ns,
        "predicted_low_ns": prediction.replay_low_ns,
        "predicted_high_ns": prediction.replay_high_ns,
    }
    paths = compare_paths(target)
    if isinstance(paths, NotMeasured):
        return found | {"note": paths.reason}
    copy_in_ns = paths.copy_in_ns if isinstance(paths.copy_in_ns, int) else 0
    measured_ns = paths.p50.graph_ns - copy_in_ns
    return found | {
        "nodes": target.nodes.nodes,
        "measured_ns": measured_ns,
        "error": prediction.replay_ns / measured_ns - 1,
    }


def cells(found: dict) -> tuple[str, ...]:
    """One row of the table."""
    name = f"{found['workload']}, {found['shape']}"
    predicted = "–"
    if "predicted_ns" in found:
        times = (found["predicted_ns"], found["predicted_low_ns"], found["predicted_high_ns"])
        predicted = "{} ({} to {})".format(*(f"{time_ns / 1000:,.1f}" for time_ns in times))
    if "error" not in found:
        return name, str(found["operations"]), "–", predicted, "–", found["note"]
    measured = f"{found['measured_ns'] / 1000:,.1f}"
    return name, str(found["operations"]), str(found["nodes"]), predicted, measured, f"{found['error']:+.1%}"


def main() -> None:
    """Read the folders and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--table", action="store_true", help="Markdown instead of JSON")
    options = parser.parse_args()
    rows = [row(folder) for folder in options.folders]
    if options.table:
        lines = [HEAD, ("---",) * len(HEAD), *map(cells, rows)]
        sys.stdout.write("".join(f"| {' | '.join(line)} |\n" for line in lines))
        return
    errors = [abs(found["error"]) for found in rows if "error" in found]
    summary = {"median_absolute_error": statistics.median(errors), "largest": max(errors)} if errors else {}
    sys.stdout.write(json.dumps({"rows": rows, **summary}, indent=2) + "\n")


if __name__ == "__main__":
    main()
