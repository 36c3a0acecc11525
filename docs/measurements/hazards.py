"""Runs the sample hazards and compares each verdict and reason with what the file says.

Usage, from the repository's root: ``python docs/measurements/hazards.py OUTPUT_FOLDER [NAME...]``. Writes
each verdict, ``hazards.json`` and ``hazards.md``. Those that must be refused run four at a time, the others
alone, since their times count. ``OPTIONS`` are further options of ``cgate run`` (default ``--quick``),
``CGATE`` is the command. The exit code is 1 where a hazard was not refused or ``cgate`` failed.
"""

import ast
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
HAZARDS = ROOT / "sample_workloads" / "hazards"
CONSTANTS = ("HAZARD", "KIND", "EXPECTED", "REASON")
SIDE_BY_SIDE = 4
LIMIT_S = 240
VERDICT_CODES = (0, 10, 11, 12)
HEAD = ("workload", "hazard", "kind", "expected", "verdict", "reason", "s", "as expected")


def constants(path):
    """What a file says of itself, without running it; empty for one that is no hazard."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        name = getattr(node.targets[0], "id", "") if isinstance(node, ast.Assign) else ""
        if name in CONSTANTS:
            found[name] = ast.literal_eval(node.value)
    return found


def run(path, out):
    """One hazard's row."""
    says, place = constants(path), out / path.stem
    place.mkdir(parents=True, exist_ok=True)
    command = os.environ.get("CGATE", "cgate").split()
    options = os.environ.get("OPTIONS", "--quick").split()
    began = time.monotonic()
    try:
        ended = subprocess.run(
            [*command, "run", str(path), "--json", *options],
            cwd=place,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        code, text, complaint = ended.returncode, ended.stdout, ended.stderr
    except subprocess.TimeoutExpired:
        code, text, complaint = None, "", f"not over after {LIMIT_S} s"
    (out / f"{path.stem}.json").write_text(text)
    (out / f"{path.stem}.log").write_text(complaint)
    row = {"name": path.stem, **{key.lower(): says[key] for key in CONSTANTS}}
    row |= {"seconds": round(time.monotonic() - began, 1), "exit_code": code}
    row |= judged(says, code, text, complaint, place)
    sys.stderr.write(f"{path.stem}: {row['verdict']} {row['codes']} in {row['seconds']} s\n")
    return row


def judged(says, code, text, complaint, place):
    """Verdict, reason codes, and whether both are as expected."""
    if code not in VERDICT_CODES or "Traceback" in complaint:
        return {"verdict": "none", "codes": [], "ok": False, "why": complaint.strip()[-300:]}
    verdict = json.loads(text)
    answer = verdict["rehearsal"] or verdict["verdict"]
    codes = [gate["code"] for gate in verdict["gates"] if gate["status"] == "fail"] + blocking(place)
    refused = says["EXPECTED"] == ("NO-GO",)
    as_expected = answer in says["EXPECTED"] if refused or answer == "NO-GO" else True
    named = says["REASON"] is None or answer != "NO-GO" or bool(set(codes) & set(says["REASON"]))
    return {
        "verdict": answer,
        "codes": list(dict.fromkeys(codes)),
        "ok": as_expected and named,
        "why": "; ".join(verdict["reasons"])[:400],
    }


def blocking(place):
    """Reason codes of the findings that refuse."""
    logs = place.glob(".cgate/runs/*/pilot.jsonl")
    records = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    return [each["code"] for each in records if each["record"] == "finding" and each["blocks"]]


def table(rows):
    """The Markdown table."""
    lines = [HEAD, ("---",) * len(HEAD)]
    for row in rows:
        expected, codes = ", ".join(row["expected"]), ", ".join(row["codes"]) or "–"
        cells = (row["name"], row["hazard"], row["kind"], expected, row["verdict"], codes)
        lines.append((*cells, f"{row['seconds']:.0f}", "yes" if row["ok"] else "**no**"))
    return "".join(f"| {' | '.join(map(str, cells))} |\n" for cells in lines)


def main(out, names):
    """Run them all and write what came of it; returns the exit code."""
    out.mkdir(parents=True, exist_ok=True)
    paths = [path for path in sorted(HAZARDS.glob("*.py")) if "HAZARD" in constants(path)]
    paths = [path for path in paths if not names or path.stem in names]
    refused = [path for path in paths if constants(path)["EXPECTED"] == ("NO-GO",)]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        rows = [*pool.map(lambda path: run(path, out), refused)]
    rows += [run(path, out) for path in paths if path not in refused]
    rows.sort(key=lambda row: row["name"])
    (out / "hazards.json").write_text(json.dumps(rows, indent=1))
    (out / "hazards.md").write_text(table(rows))
    sys.stdout.write(table(rows))
    for row in rows:
        if not row["ok"]:
            sys.stdout.write(f"{row['name']}: {row['why']}\n")
    return 0 if all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
