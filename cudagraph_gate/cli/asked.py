"""What the command line asked for, as the pipeline's options."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cudagraph_gate.errors import UsageError

if TYPE_CHECKING:
    from cudagraph_gate.pipeline import Options


def attack_asked(scenarios: str | None, skip: str | None, quick: bool) -> dict[str, Any]:
    """Which hard scenarios are run. Raises UsageError for names that are none, or that contradict."""
    from cudagraph_gate.pipeline import scenario_names

    if scenarios is not None and quick:
        raise UsageError("--quick chooses scenarios itself", hint="leave out one of --quick and --scenarios")
    chosen = None if scenarios is None else scenario_names(scenarios, "--scenarios")
    left_out = () if skip is None else scenario_names(skip, "--skip")
    return {"scenarios": chosen, "skip": left_out, "quick": quick}


def options_asked(
    device: str, shapes: str | None, limit_s: float, report: Callable[..., None], **recording: Any
) -> Options:
    """The options of one command; ``recording`` are those that only it has.

    Raises UsageError for a device that there is not.
    """
    from cudagraph_gate.pipeline import Options
    from cudagraph_gate.report import terminal

    if device not in ("auto", "cuda", "simulated"):
        raise UsageError(f"--device {device} is unknown", hint="use auto, cuda or simulated")
    return Options(
        device=device,  # type: ignore[arg-type]
        shapes=shapes,
        limit_s=limit_s,
        on_progress=report,
        warn=terminal.say,
        **recording,
    )
