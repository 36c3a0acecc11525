"""What all stages are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cudagraph_gate.device import DeviceChoice
from cudagraph_gate.evidence import RUNS
from cudagraph_gate.pilot.jobs import DEFAULT_SEED, Progress
from cudagraph_gate.pilot.worker import PHASE_LIMIT_S

LAST_RUNG: Final = 6


@dataclass(frozen=True)
class Options:
    """What all stages are told."""

    device: DeviceChoice = "auto"
    shapes: str | None = None
    """What ``--shapes`` said: None if it was not given, empty if it was given bare."""
    duration_s: float | None = None
    """Recording ends after so many seconds."""
    iterations: int | None = None
    """Requests to record; of a script, ranges called ``range_name``."""
    range_name: str = ""
    """The user range that marks requests; empty: cgate's own."""
    trace_children: bool = False
    rungs: int = LAST_RUNG
    """The highest rung of the ladder that is tried."""
    scenarios: tuple[str, ...] | None = None
    """The hard scenarios that are run; None: all."""
    skip: tuple[str, ...] = ()
    """Hard scenarios that are left out."""
    quick: bool = False
    """Run only the hard scenarios that find most in the least time."""
    flush_l2: bool = False
    """Overwrite the L2 cache before each timed request."""
    limit_s: float = PHASE_LIMIT_S
    seed: int = DEFAULT_SEED
    root: Path = RUNS
    on_progress: Callable[[Progress], None] = lambda progress: None
    warn: Callable[[str], None] = lambda text: None
