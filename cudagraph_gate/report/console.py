"""The results as text for a terminal: 80 columns are enough, and no colour where there is no terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cudagraph_gate.gates.check import ending
from cudagraph_gate.gates.environment import stale_text
from cudagraph_gate.gates.latency import PathComparison, QuantilePair, compare_paths
from cudagraph_gate.gates.trial_view import Evidence, ShapeTrial, view_trial
from cudagraph_gate.gates.wording import duration, kernel_name, percent, size
from cudagraph_gate.model import (
    Decision,
    DeviceIdle,
    Diagnosis,
    Fingerprint,
    GateStatus,
    NotMeasured,
    Prediction,
    ProfileTimes,
    Verdict,
)
from cudagraph_gate.records import Comparison

__all__ = [
    "SIMULATED_LINE",
    "duration",
    "print_diagnosis",
    "print_fingerprint",
    "print_trial",
    "print_verdict",
]

SIMULATED_LINE: Final = "SIMULATED DEVICE: virtual times, a rehearsal, never a GO"
TOP_IDLE: Final = 5
"""Idle intervals shown: the longest ones explain most; all are in diagnosis.json."""
NAME_LENGTH: Final = 40
"""Characters of a kernel's name in a table: template arguments would fill the screen."""

_VERDICT_STYLE: Final = {
    Decision.GO: "bold green",
    Decision.CONDITIONAL: "bold yellow",
    Decision.NO_GO: "bold red",
    Decision.INCONCLUSIVE: "bold yellow",
}
_STATUS_STYLE: Final = {GateStatus.PASS: "green", GateStatus.FAIL: "bold red", GateStatus.UNKNOWN: "yellow"}


# --- diagnosis ------------------------------------------------------------------------------------


def print_diagnosis(console: Console, diagnosis: Diagnosis, times: ProfileTimes | None) -> None:
    """Where the time of the normal path goes, and what a graph is predicted to give."""
    _simulated_line(console, diagnosis.simulated)
    for device in diagnosis.devices:
        _print_device(console, device)
    _print_launches(console, diagnosis)
    if times is not None:
        _print_times(console, times)
    _print_prediction(console, diagnosis.prediction)
    for problem in diagnosis.problems:
        _line(console, f"problem: {problem}", "yellow")
    _line(console, diagnosis.conclusion, "bold")


def idle_shares(device: DeviceIdle) -> list[tuple[str, int, float]]:
    """Busy and each cause of idle with its ns and its share of the window, the largest cause first."""
    causes = sorted(device.causes.items(), key=lambda item: -item[1])
    parts = [("busy", device.busy_ns), *((str(cause), ns) for cause, ns in causes)]
    return [(name, ns, ns / device.window_ns if device.window_ns else 0.0) for name, ns in parts]


def _print_device(console: Console, device: DeviceIdle) -> None:
    title = f"GPU time, device {device.device} of process {device.process}"
    if isinstance(device.idle_ns, NotMeasured):
        _line(console, f"{title}: busy {duration(device.busy_ns)} of {duration(device.window_ns)}")
        _line(console, f"idle is not measurable: {device.idle_ns.reason}", "yellow")
        return
    table = _table(title, ("cause", "ms", "% of window"), right=(1, 2))
    parts = [part for part in idle_shares(device) if part[0] == "busy" or part[1] > 0]
    for name, ns, share in parts:
        _row(table, name, f"{ns / 1e6:.3f}", percent(share))
    table.add_section()
    _row(
        table,
        "total",
        f"{sum(ns for _, ns, _ in parts) / 1e6:.3f}",
        percent(sum(share for *_, share in parts)),
    )
    console.print(table)
    _print_top_idle(console, device)


def _print_top_idle(console: Console, device: DeviceIdle) -> None:
    if not device.top_idle:
        return
    table = _table(
        "longest idle", ("at ms", "idle", "cause", "next operation", "host call", "range"), right=(0, 1)
    )
    for idle in device.top_idle[:TOP_IDLE]:
        at, lasted = f"{idle.start_ns / 1e6:.3f}", duration(idle.duration_ns)
        names = (_shortened(name) for name in (idle.next_operation, idle.host_call, idle.range_name))
        _row(table, at, lasted, idle.cause, *names)
    console.print(table)


def _print_launches(console: Console, diagnosis: Diagnosis) -> None:
    launches, requests = diagnosis.launches, diagnosis.requests
    table = _table("submission", ("what", "value"), right=(1,))
    _row(table, "submission calls", f"{launches.submissions}")
    _row(table, "graph launches", f"{launches.graph_launches}")
    gap = launches.submission_gap
    _row(table, "submission gap P50", _or_reason(gap if isinstance(gap, NotMeasured) else gap.p50))
    _row(table, "TKLQT", _or_reason(launches.tklqt_ns))
    if isinstance(requests, NotMeasured):
        _row(table, "requests", _or_reason(requests))
    else:
        _row(table, "requests", f"{requests.count}")
        _row(table, "submissions per request", f"{requests.submissions}")
        _row(table, "operations per request", f"{requests.operations}")
        _row(table, "blocking calls per request", f"{requests.blocking_calls}")
        _row(table, "busy per request", duration(requests.busy_ns))
        _row(table, "submission idle per request", _or_reason(requests.submission_idle_ns))
    for call in launches.blocking_calls:
        _row(table, f"blocking: {call.name}", f"{call.count} x, {duration(call.total_ns)}")
    console.print(table)


def _print_times(console: Console, times: ProfileTimes) -> None:
    table = _table(f"normal path, shape {times.shape}", ("what", "value"), right=(1,))
    _row(table, "first request", duration(times.cold_ns))
    for name in ("p50", "p95", "p99"):
        _row(table, f"request {name.upper()}", duration(getattr(times.latency, name)))
    _row(table, "CPU time per request", duration(times.cpu_ns))
    _row(table, "recorder's inflation", _inflation(times))
    _row(
        table,
        "copy of the inputs",
        f"{duration(times.copy_in_ns)} for {size(sum(times.input_bytes.values()))}",
    )
    console.print(table)


def _inflation(times: ProfileTimes) -> str:
    if times.latency.p50 <= 0:
        return "not measured: the request time is zero"
    return f"{times.recorded_latency.p50 / times.latency.p50:.2f} x"


def _print_prediction(console: Console, prediction: Prediction | NotMeasured) -> None:
    if isinstance(prediction, NotMeasured):
        _line(console, f"no prediction: {prediction.reason}", "yellow")
        return
    table = _table("prediction", ("what", "value"), right=(1,))
    interval = f"{duration(prediction.replay_low_ns)} to {duration(prediction.replay_high_ns)}"
    _row(table, "normal request", duration(prediction.normal_ns))
    _row(table, "replay", f"{duration(prediction.replay_ns)} ({interval})")
    _row(table, "copy of the inputs", duration(prediction.copy_in_ns))
    _row(table, "graph request", duration(prediction.request_ns))
    _row(table, "gain", f"{percent(prediction.gain)} ({_gain_interval(prediction)})")
    _row(table, "upper bound", _or_reason(prediction.upper_bound_ns))
    console.print(table)


def _gain_interval(prediction: Prediction) -> str:
    if prediction.normal_ns <= 0:
        return "no interval"
    rest = prediction.request_ns - prediction.replay_ns
    ends = (prediction.replay_high_ns, prediction.replay_low_ns)
    return " to ".join(percent(1 - (rest + replay) / prediction.normal_ns) for replay in ends)


# --- trial ----------------------------------------------------------------------------------------


def print_trial(console: Console, evidence: Evidence, *, said_simulated: bool = False) -> None:
    """What the trial of each shape cost and gave; ``said_simulated``: the line above said so already."""
    _simulated_line(console, evidence.simulated and not said_simulated)
    trial = view_trial(evidence)
    shapes = ([trial.target] if trial.target else []) + list(trial.others)
    if not shapes:
        _line(console, "no shape was tried", "yellow")
    for shape in shapes:
        _print_shape(console, shape)
    if trial.target is not None:
        _print_prediction_error(console, evidence, trial.target)
    for note in trial.noticed:
        _line(console, f"noticed: {note}")


def _print_prediction_error(console: Console, evidence: Evidence, target: ShapeTrial) -> None:
    """How far the prediction from the normal path alone was from what the trial then measured."""
    prediction = evidence.diagnosis.prediction if evidence.diagnosis else None
    paths = compare_paths(target)
    if not isinstance(prediction, Prediction) or isinstance(paths, NotMeasured) or paths.p50.graph_ns <= 0:
        return
    predicted, measured = prediction.request_ns, paths.p50.graph_ns
    _line(
        console,
        f"graph request of shape {target.shape}: predicted {duration(predicted)}, measured "
        f"{duration(measured)} (prediction off by {percent(predicted / measured - 1)})",
    )


def _print_shape(console: Console, shape: ShapeTrial) -> None:
    if not shape.records:
        _line(console, f"shape {shape.shape}: not tried", "yellow")
        return
    if shape.costs:
        costs = _table(f"costs, shape {shape.shape}", ("phase", "host time"), right=(1,))
        for phase, elapsed in shape.costs.items():
            _row(costs, phase, _or_reason(elapsed))
        console.print(costs)
    if shape.nodes is not None:
        kinds = ", ".join(f"{count} {kind}" for kind, count in shape.nodes.kinds.items())
        _line(console, f"graph: {shape.nodes.nodes} nodes ({kinds})")
    _print_comparisons(console, shape.comparisons)
    if shape.completed:
        _print_latency(console, compare_paths(shape))
    for finding in shape.findings:
        place = " ".join(part for part in (finding.call, finding.where) if part)
        text = f"finding {finding.code} in {finding.phase}: {finding.message}" + (
            f" [{place}]" if place else ""
        )
        _line(console, text, "red" if finding.blocks else "yellow")
        if finding.advice:
            _line(console, f"  {finding.advice}")
    if not shape.completed:
        _line(console, f"not completed: {ending(shape)}", "yellow")


def _print_comparisons(console: Console, comparisons: Sequence[Comparison]) -> None:
    for subject in dict.fromkeys(comparison.subject for comparison in comparisons):
        chosen = [comparison for comparison in comparisons if comparison.subject == subject]
        equal = sum(comparison.equal for comparison in chosen)
        exact = sum(comparison.exact for comparison in chosen)
        text = f"{subject}: {equal} of {len(chosen)} equal, {exact} bit by bit"
        _line(console, text, "" if equal == len(chosen) else "red")


def latency_rows(paths: PathComparison) -> list[tuple[str, QuantilePair | NotMeasured]]:
    """The quantiles by name."""
    return [("P50", paths.p50), ("P95", paths.p95), ("P99", paths.p99)]


def _print_latency(console: Console, paths: PathComparison | NotMeasured) -> None:
    if isinstance(paths, NotMeasured):
        _line(console, f"latency: {paths.reason}", "yellow")
        return
    table = _table("latency", ("", "normal", "graph", "ratio", "95 % interval"), right=(1, 2, 3, 4))
    for name, pair in latency_rows(paths):
        if isinstance(pair, NotMeasured):
            _row(table, name, pair.reason, "", "", "")
            continue
        interval = f"{pair.ratio.low:.3f} to {pair.ratio.high:.3f}"
        _row(
            table,
            name,
            duration(pair.normal_ns),
            duration(pair.graph_ns),
            f"{pair.ratio.ratio:.3f}",
            interval,
        )
    _row(table, "CPU", duration(paths.normal_cpu_ns), duration(paths.graph_cpu_ns), "", "")
    _row(table, "copy", "", _or_reason(paths.copy_in_ns), "", "")
    console.print(table)
    noise = f"{percent(paths.noise.value)}, at most {percent(paths.noise.upper)}"
    _line(console, f"noise floor (normal against normal): {noise}")


# --- verdict and environment ----------------------------------------------------------------------


def print_verdict(console: Console, verdict: Verdict) -> None:
    """The verdict, what it rests on and what it holds for."""
    fingerprint = verdict.fingerprint
    simulated = isinstance(fingerprint, Fingerprint) and fingerprint.simulated
    _simulated_line(console, simulated or verdict.rehearsal is not None)
    _line(console, f"{verdict.verdict}  {verdict.workload}", _VERDICT_STYLE[verdict.verdict])
    if verdict.rehearsal is not None:
        _line(console, f"rehearsal: {verdict.rehearsal}")
    if verdict.stale:
        _line(console, f"stale: {stale_text(verdict.stale)}", "yellow")
        _line(console, f"where it was recorded: {verdict.recorded_verdict}")
    table = _table("", ("", "gate", "answer", "reason"), right=(0,))
    for gate in verdict.gates:
        code = f" [{gate.code}]" if gate.code else ""
        answer = Text(gate.status, style=_STATUS_STYLE[gate.status])
        table.add_row(str(gate.number), Text(gate.name), answer, Text(gate.reason + code, overflow="fold"))
    console.print(table)
    for condition in verdict.conditions:
        _line(console, f"condition: {condition}")
    _line(console, f"run {verdict.run}; it holds for the recorded environment only")


def print_fingerprint(console: Console, fingerprint: Fingerprint) -> None:
    """The environment: what must stay equal, what was so at the time, what could not be read."""
    _simulated_line(console, fingerprint.simulated)
    table = _table(f"environment {fingerprint.digest[:12]}", ("field", "value"))
    for name, value in fingerprint.identity.items():
        _row(table, name, field_text(value))
    table.add_section()
    for name, value in fingerprint.conditions.items():
        _row(table, f"{name} (now)", field_text(value))
    table.add_section()
    for name, reason in fingerprint.missing.items():
        _row(table, name, f"unknown: {reason}")
    console.print(table)


def field_text(value: object) -> str:
    """A fingerprint value on one line."""
    return ", ".join(value) if isinstance(value, tuple) else str(value)


# --- pieces ---------------------------------------------------------------------------------------


def _simulated_line(console: Console, simulated: bool) -> None:
    if simulated:
        _line(console, SIMULATED_LINE, "bold magenta")


def _line(console: Console, text: str, style: str = "") -> None:
    # As Text: a name with square brackets is no markup, and paths or numbers get no colour of their own.
    console.print(Text(text, style=style, overflow="fold"))


def _table(title: str, columns: Iterable[str], right: tuple[int, ...] = ()) -> Table:
    table = Table(title=Text(title) if title else None, title_justify="left")
    for index, name in enumerate(columns):
        table.add_column(Text(name), justify="right" if index in right else "left", overflow="fold")
    return table


def _row(table: Table, *cells: str) -> None:
    table.add_row(*(Text(cell, overflow="fold") for cell in cells))


def _shortened(symbol: str) -> str:
    name = kernel_name(symbol).rpartition("::")[2]
    return name if len(name) <= NAME_LENGTH else f"{name[: NAME_LENGTH - 1]}…"


def _or_reason(value: int | NotMeasured) -> str:
    return f"not measured: {value.reason}" if isinstance(value, NotMeasured) else duration(value)
