"""Which hard scenarios are run, and what each one's workers are told."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from cudagraph_gate.errors import UsageError
from cudagraph_gate.model import SCENARIO_BY_NAME, SCENARIOS, Scenario
from cudagraph_gate.pilot.jobs import Progress
from cudagraph_gate.pipeline.options import Options

ALL: Final = "all"


@dataclass(frozen=True)
class AttackPlan:
    """The scenarios that are run, in order, and of the others what left them out."""

    chosen: tuple[Scenario, ...]
    skipped: dict[str, str]


def scenario_names(text: str | None, option: str) -> tuple[str, ...]:
    """The names in a comma-separated list, all for ``all``. Raises UsageError for one that is none."""
    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    if names == (ALL,):
        return tuple(SCENARIO_BY_NAME)
    for name in names:
        if name not in SCENARIO_BY_NAME:
            near = difflib.get_close_matches(name, SCENARIO_BY_NAME, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(SCENARIO_BY_NAME)}"
            raise UsageError(f"{option} {name} is no scenario", hint=hint)
    if text is not None and not names:
        raise UsageError(f"{option} names no scenario", hint=f"known are {', '.join(SCENARIO_BY_NAME)}")
    return names


def attack_plan(options: Options) -> AttackPlan:
    """Sort the scenarios by what the options say of them."""
    skipped = {scenario.name: why for scenario in SCENARIOS if (why := _left_out_by(scenario, options))}
    chosen = tuple(scenario for scenario in SCENARIOS if scenario.name not in skipped)
    return AttackPlan(chosen, skipped)


def _left_out_by(scenario: Scenario, options: Options) -> str:
    if scenario.name in options.skip:
        return "--skip"
    if options.scenarios is not None:
        return "" if scenario.name in options.scenarios else "--scenarios"
    return "--quick" if options.quick and not scenario.quick else ""


def workers_of(scenarios: Sequence[Scenario]) -> int:
    """How many workers they take, if each ends as it must."""
    return sum(len(scenario.ends) for scenario in scenarios)


def scenario_options(options: Options, number: int, total: int) -> Options:
    """The options of one scenario's workers: progress says which scenario of how many it is."""

    def show(progress: Progress) -> None:
        options.on_progress(Progress(text=progress.text, phase=progress.phase, done=number, total=total))

    return replace(options, on_progress=show)
