"""The same evidence as one HTML file with pictures: no script, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

import numpy as np

from cudagraph_gate.gates.environment import stale_text
from cudagraph_gate.gates.explicit import explicit_note
from cudagraph_gate.gates.latency import compare_paths
from cudagraph_gate.gates.trial_view import Evidence, ShapeTrial, view_trial
from cudagraph_gate.gates.wording import duration, percent
from cudagraph_gate.model import Decision, Fingerprint, NotMeasured, Verdict
from cudagraph_gate.records import CapturedMap, PathName
from cudagraph_gate.report.console import (
    comparison_lines,
    cost_rows,
    field_text,
    finding_text,
    judged_shape,
    latency_rows,
    nodes_text,
    shape_title,
)
from cudagraph_gate.report.console_pieces import SIMULATED_LINE
from cudagraph_gate.report.graph_map import (
    GRAPH_MAP_HEAD,
    graph_map_notes,
    graph_map_rows,
    graph_map_summary,
)
from cudagraph_gate.report.html_diagnosis import diagnosis_parts
from cudagraph_gate.report.html_pieces import WIDTH, escaped, rows_of, table_of
from cudagraph_gate.report.html_rungs import ladder_parts, shapes_parts
from cudagraph_gate.report.html_scenarios import scenario_parts
from cudagraph_gate.report.html_whole_request import whole_request_parts

LEFT: Final = 60
"""Where the axis starts: the paths' names stand before it."""
MAX_DOTS: Final = 400
"""Requests drawn a path: more dots hide each other. They are taken evenly from the sorted latencies."""

_BANNER: Final = {
    Decision.GO: "go",
    Decision.CONDITIONAL: "maybe",
    Decision.NO_GO: "no-go",
    Decision.INCONCLUSIVE: "maybe",
}
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1a202c; --paper: #ffffff; --line: #cbd5e0; --soft: #4a5568;
        --good: #276749; --bad: #9b2c2c; --open: #975a16; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #edf2f7; --paper: #171c26; --line: #4a5568; --soft: #a0aec0;
          --good: #68d391; --bad: #fc8181; --open: #f6ad55; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: left; vertical-align: top; }
td { overflow-wrap: anywhere; } h1, p { overflow-wrap: anywhere; }
.gates td, .gates th { white-space: nowrap; } .gates td:nth-child(4) { white-space: normal; }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font-size: 12px; }
.axis { stroke: var(--line); } .note { color: var(--soft); }
.banner { padding: 1rem; border-radius: .4rem; color: #ffffff; font-size: 1.4rem; }
.go { background: #276749; } .no-go { background: #9b2c2c; } .maybe { background: #975a16; }
.pass, .fail, .unknown { font-weight: bold; }
.pass { color: var(--good); } .fail { color: var(--bad); } .unknown { color: var(--open); }
.swatch { display: inline-block; width: .8em; height: .8em; margin-right: .4em; }
"""


def render_html(evidence: Evidence, verdict: Verdict) -> str:
    """The whole report as one self-contained HTML document."""
    parts = [
        _banner(evidence, verdict),
        _gates(verdict),
        *diagnosis_parts(evidence),
        *_shapes(evidence),
        *ladder_parts(view_trial(evidence)),
        *scenario_parts(evidence, view_trial(evidence)),
        *shapes_parts(evidence),
        _environment(verdict.fingerprint),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>cgate: {escape(verdict.workload)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _banner(evidence: Evidence, verdict: Verdict) -> str:
    lines = [f"<p>run {escape(verdict.run)}; the verdict holds for the recorded environment only</p>"]
    lines.append(f"<p>{escape(judged_shape(verdict))}</p>")
    if verdict.rehearsal is not None:
        lines.append(f"<p>rehearsal: <b>{verdict.rehearsal}</b></p>")
    if verdict.stale:
        fields = escape(stale_text(verdict.stale))
        lines.append(f"<p>stale: {fields}; where it was recorded: {verdict.recorded_verdict}</p>")
    lines += [f"<p>{escape(reason)}</p>" for reason in verdict.reasons]
    lines += [f"<p>condition: {escape(condition)}</p>" for condition in verdict.conditions]
    simulated = f"<p><b>{SIMULATED_LINE}</b></p>" if evidence.simulated else ""
    title = f'<h1 class="banner {_BANNER[verdict.verdict]}">{verdict.verdict} {escape(verdict.workload)}</h1>'
    return "\n".join([simulated, title, *lines])


def _gates(verdict: Verdict) -> str:
    rows = [
        [
            str(gate.number),
            escape(gate.name),
            f'<span class="{gate.status}">{gate.status}</span>',
            escape(gate.reason) + (f' <span class="note">{gate.code}</span>' if gate.code else ""),
            "<br>".join(map(escape, gate.evidence)),
        ]
        for gate in verdict.gates
    ]
    table = table_of(("", "gate", "answer", "reason", "evidence"), rows)
    return f'<h2>Gates</h2><div class="gates">{table}</div>'


# --- trial --------------------------------------------------------------------------------------


def _shapes(evidence: Evidence) -> Iterable[str]:
    trial = view_trial(evidence)
    shapes = ([trial.target] if trial.target else []) + list(trial.others)
    for shape in shapes:
        explicit = trial.explicit.get(shape.shape)
        for tried in (shape,) if explicit is None else (shape, explicit):
            yield _latency(tried)
            yield from whole_request_parts(tried)
            yield from _found(tried)
        if explicit is not None and (note := explicit_note(explicit)):
            yield f'<p class="fail">{escape(note)}</p>'


def _found(shape: ShapeTrial) -> Iterable[str]:
    """What a shape's graph is, what it cost, what agreed and what went wrong."""
    maps = shape.of(CapturedMap)
    yield from _graph_map(shape, maps[-1]) if maps else ()
    lines = [nodes_text(shape.nodes)] if shape.nodes is not None and not maps else []
    lines += [text for text, _ in comparison_lines(shape.comparisons)]
    for finding in shape.findings:
        lines += [finding_text(finding), finding.advice]
    yield from (f"<p>{escape(line)}</p>" for line in lines if line)
    if shape.costs:
        yield f"<h2>Costs, {escape(shape_title(shape))}</h2>" + rows_of(
            cost_rows(shape), ("phase", "host time")
        )


def _graph_map(shape: ShapeTrial, found: CapturedMap) -> Iterable[str]:
    """The parts of the graph, who waits for whom, and what replaying it asks for."""
    yield f"<h2>Graph, {escape(shape_title(shape))}</h2>"
    yield table_of(GRAPH_MAP_HEAD, map(escaped, graph_map_rows(found.map)))
    yield f"<p>{escape(graph_map_summary(found.map))}</p>"
    yield from (f"<p>{escape(note)}</p>" for note in graph_map_notes(found.map))


def _latency(shape: ShapeTrial) -> str:
    title = f"<h2>Latency, {escape(shape_title(shape))}</h2>"
    paths = compare_paths(shape)
    if isinstance(paths, NotMeasured):
        return f"{title}<p>{escape(paths.reason)}</p>"
    rows = [
        [name, escape(pair.reason), "", "", ""]
        if isinstance(pair, NotMeasured)
        else [
            name,
            duration(pair.normal_ns),
            duration(pair.graph_ns),
            f"{pair.ratio.ratio:.3f}",
            f"{pair.ratio.low:.3f} to {pair.ratio.high:.3f}",
        ]
        for name, pair in latency_rows(paths)
    ]
    table = table_of(("", "normal", "graph", "ratio", "95 % interval"), rows)
    noise = (
        f'<p class="note">noise floor {percent(paths.noise.value)}, at most {percent(paths.noise.upper)}</p>'
    )
    return title + latency_picture(shape) + table + noise


def latency_picture(shape: ShapeTrial) -> str:
    """Each request of both paths as a dot over its latency, with a mark at the median.

    The axis starts at zero and ends at the slowest P99, so that one stray request does not squeeze the
    rest; slower requests are drawn at the right end.
    """
    normal, graph = _latencies(shape, "normal"), _latencies(shape, "graph")
    limit = max(float(np.quantile(sample, 0.99)) for sample in (normal, graph)) * 1.05 or 1.0
    rows = _dots("normal", normal, limit, 0, "#3182ce") + _dots("graph", graph, limit, 60, "#dd6b20")
    ticks = "".join(
        f'<text x="{_x(part, 1.0):.0f}" y="140" text-anchor="{anchor}">{duration(limit * part)}</text>'
        for part, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end"))
    )
    axis = f'<line class="axis" x1="{LEFT}" y1="122" x2="{WIDTH}" y2="122"/>'
    label = "latency of each request, normal and graph"
    return f'<svg viewBox="0 0 {WIDTH} 146" role="img" aria-label="{label}">{rows}{axis}{ticks}</svg>'


def _latencies(shape: ShapeTrial, path: PathName) -> list[int]:
    return sorted(latency for block in shape.blocks(path) for latency in block.latencies_ns)


def _dots(path: str, sample: list[int], limit: float, top: int, colour: str) -> str:
    step = max(1, len(sample) // MAX_DOTS)
    # Heights only spread the dots so that equal latencies stay visible.
    dots = [
        f'<circle cx="{_x(latency, limit):.1f}" cy="{top + 12 + (index * 7) % 36}" r="2"/>'
        for index, latency in enumerate(sample[::step])
    ]
    median = float(np.median(sample))
    x = f"{_x(median, limit):.1f}"
    mark = f'<line x1="{x}" y1="{top + 6}" x2="{x}" y2="{top + 54}" stroke="{colour}" stroke-width="3"/>'
    name = f'<text x="0" y="{top + 34}">{path}</text><title>{path}: median {duration(median)}</title>'
    return f'<g>{name}<g fill="{colour}" fill-opacity="0.5">{"".join(dots)}{mark}</g></g>'


def _x(latency: float, limit: float) -> float:
    return LEFT + (WIDTH - LEFT - 4) * min(latency / limit, 1.0)


# --- environment ----------------------------------------------------------------------------------


def _environment(fingerprint: Fingerprint | NotMeasured) -> str:
    title = "<h2>Environment</h2>"
    if isinstance(fingerprint, NotMeasured):
        return f"{title}<p>{escape(fingerprint.reason)}</p>"
    rows = [[escape(name), escape(field_text(value))] for name, value in fingerprint.identity.items()]
    rows += [
        [f"{escape(name)} (then)", escape(field_text(value))]
        for name, value in fingerprint.conditions.items()
    ]
    rows += [[escape(name), f"unknown: {escape(reason)}"] for name, reason in fingerprint.missing.items()]
    return (
        title
        + table_of(("field", "value"), rows)
        + f'<p class="note">digest {escape(fingerprint.digest)}</p>'
    )
