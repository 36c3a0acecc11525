"""Other views of a run's timeline, made from it when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cudagraph_gate.errors import EvidenceError, UsageError
from cudagraph_gate.evidence import Run, missing
from cudagraph_gate.gates.trial_view import view_trial
from cudagraph_gate.model import GraphMap, HtaView, NotMeasured, Segment
from cudagraph_gate.pipeline.judging import collect_evidence
from cudagraph_gate.records import CapturedMap


def write_perfetto_view(run: Run, path: Path) -> None:
    """The timeline with its idle causes, to open in Perfetto. Raises EvidenceError if the run has none."""
    from cudagraph_gate.diagnosis import idle_pieces
    from cudagraph_gate.timeline.perfetto import write_perfetto
    from cudagraph_gate.timeline.table import load

    timeline = load(_timeline_path(run))
    _written(path, lambda: write_perfetto(timeline, idle_pieces(timeline), path))


def write_map(run: Run, path: Path, dot_of: Callable[[GraphMap], str]) -> None:
    """The map of the judged graph by ``dot_of``, else of the segment with the most to gain, as DOT.

    Raises EvidenceError if the run has neither.
    """
    found = _captured_map(run)
    if found is None:
        write_segment_map(run, path)
    else:
        _written(path, lambda: path.write_text(dot_of(found), encoding="utf-8"))


def _captured_map(run: Run) -> GraphMap | None:
    target = view_trial(collect_evidence(run)).target
    maps = target.of(CapturedMap) if target is not None else ()
    return maps[-1].map if maps else None


def write_segment_map(run: Run, path: Path) -> None:
    """The map of the segment with the most to gain, as DOT. Raises EvidenceError if there is no segment."""
    from cudagraph_gate.diagnosis.segment_dot import dot

    _written(path, lambda: path.write_text(dot(_best_segment(run)), encoding="utf-8"))


def hta_view(run: Run) -> HtaView:
    """Idle by HolisticTraceAnalysis's definitions. Raises EvidenceError if the run has no timeline."""
    from cudagraph_gate.diagnosis.hta import hta_idle, hta_temporal
    from cudagraph_gate.timeline.table import load

    timeline = load(_timeline_path(run))
    return HtaView(streams=hta_idle(timeline), devices=hta_temporal(timeline))


def _timeline_path(run: Run) -> Path:
    if not run.timeline_path.exists():
        raise EvidenceError("has no timeline", where=run.name, hint="profile the workload again")
    return run.timeline_path


def _best_segment(run: Run) -> Segment:
    diagnosis = run.diagnosis()
    segments = diagnosis.segments if diagnosis is not None else missing("diagnosis")
    if isinstance(segments, NotMeasured):
        raise EvidenceError(f"has no segments: {segments.reason}", where=run.name)
    if not segments:
        raise EvidenceError("no sequence of operations repeats in it: there is no map", where=run.name)
    return segments[0]


def _written(path: Path, write: Callable[[], object]) -> None:
    """Run ``write``. Raises UsageError where the file can't be written."""
    try:
        write()
    except OSError as error:
        raise UsageError(f"can't write it ({error.strerror})", where=str(path)) from error
