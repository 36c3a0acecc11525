"""Memory over time: growth that stops is a plateau, growth that goes on is a leak.

Judged from the second half of the repetitions alone, since pools warm up and caches fill in the first.
Slopes are Theil and Sen's (the median of all pairs' slopes); a running median of three takes single outliers
out.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, pairwise
from typing import Any, Final

import msgspec

from cudagraph_gate.gates.check import Check, ending, fails, finding_checks, holds, undecided
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.gates.trial_view import ShapeTrial
from cudagraph_gate.gates.wording import size
from cudagraph_gate.model import NotMeasured, Reason
from cudagraph_gate.records import MemorySeries, Phase

MIN_HALF_POINTS: Final = 6
"""Fewer points are in a rising order by chance too often: six of noise are in one of 720 cases."""
STEADY_TAU: Final = 0.8
"""Least surplus of rising over falling pairs (Kendall's tau) for growth among noise: six points without a
trend reach it in 1 of 120 cases, more points less often."""
MIN_RISES: Final = 3
"""Rises in the second half that make a leak of a figure that never falls: two may be a pool that still warms
up."""
NOISE_FACTOR: Final = 3.0
"""Growth over the half that is not so many times the median deviation from the line is none."""
DEVICE_STEP_BYTES: Final = 2 << 20
"""The driver and torch's allocator take device memory in blocks of 2 MiB: movement to and fro within one
block is no other process."""
HOST_STEP_BYTES: Final = 1 << 20
"""Python takes host memory in arenas of 1 MiB."""
HOST_FLOOR_BYTES: Final = 2 * HOST_STEP_BYTES
"""Heaps fragment and lists grow: two arenas over half of the repetitions are no leak."""
SLOWING_SHARE: Final = 0.5
"""Growth in the last quarter below this share of the one before may be about to stop."""

_ONE: Final = {"replays": "replay", "cycles": "capture cycle", "aborted": "aborted capture"}
"""Activities with the name of one repetition."""
_WHERE: Final = {"device": "device memory", "allocator": "the allocator's memory", "host": "host memory"}


class Course(StrEnum):
    """What memory does over the repetitions."""

    FLAT = "flat"
    PLATEAU = "plateau"
    """It grew and stopped."""
    LEAK = "leak"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Trend:
    """One figure's course."""

    course: Course
    bytes_per_repetition: float
    """Over the second half."""
    grown_bytes: int
    """From the first point to the last."""
    noisy: bool = False
    """It also falls, by more than the allocators' blocks explain."""
    why: str = ""
    """Why it is undecided."""


@dataclass(frozen=True)
class Growth:
    """What repeating one activity does to memory; ``source`` is the figure that decided."""

    activity: str
    repetitions: int
    points: int
    course: Course
    source: str
    device: Trend
    allocator: Trend | NotMeasured
    host: Trend | NotMeasured
    why: str = ""

    @property
    def trend(self) -> Trend:
        """That of ``source``."""
        found: Trend | NotMeasured = getattr(self, self.source)
        return self.device if isinstance(found, NotMeasured) else found


# --- for the gate ---------------------------------------------------------------------------------


def memory_checks(trial: ShapeTrial | None, policy: Policy, *, required: bool = False) -> list[Check]:
    """What the records of the worker that repeated a shape's activities say.

    With ``required``, an activity that is missing is undecided too.
    """
    found = _newest(trial)
    checks = [_check(judge_series(series), policy) for series in found.values()]
    if trial is not None:
        checks += finding_checks(trial, frozenset({Phase.MEMORY}))
    missing = [activity for activity in _wanted(trial) if activity not in found]
    if required and missing:
        checks.append(undecided(Reason.NOT_TRIED, _missing_text(trial, missing)))
    return checks


def measured_memory(trial: ShapeTrial | None) -> dict[str, Any]:
    """Of each activity: course, slope in bytes per repetition, growth in bytes, repetitions, points."""
    growths = {activity: judge_series(series) for activity, series in _newest(trial).items()}
    return {
        activity: {
            "course": growth.course.value,
            "source": growth.source,
            "bytes_per_repetition": growth.trend.bytes_per_repetition,
            "device_grown_bytes": growth.device.grown_bytes,
            "allocator_grown_bytes": _grown(growth.allocator),
            "host_grown_bytes": _grown(growth.host),
            "repetitions": growth.repetitions,
            "points": growth.points,
        }
        for activity, growth in growths.items()
    }


def _newest(trial: ShapeTrial | None) -> dict[str, MemorySeries]:
    return {} if trial is None else {series.activity: series for series in trial.of(MemorySeries)}


def _wanted(trial: ShapeTrial | None) -> tuple[str, ...]:
    """A graph that was not captured is only replayed."""
    names = tuple(_ONE)
    return names[:1] if trial is not None and trial.method != "capture" else names


def _missing_text(trial: ShapeTrial | None, missing: Sequence[str]) -> str:
    text = "memory over time was not measured"
    if trial is None or not trial.records:
        return text
    return f"{text} for {', '.join(missing)}: {ending(trial)}"


def _grown(trend: Trend | NotMeasured) -> Any:
    return msgspec.to_builtins(trend) if isinstance(trend, NotMeasured) else trend.grown_bytes


def _check(growth: Growth, policy: Policy) -> Check:
    one, where = _ONE[growth.activity], _WHERE[growth.source]
    times = f"over {growth.repetitions} {one}s"
    if growth.course is Course.LEAK:
        slope = size(growth.trend.bytes_per_repetition)
        outside = f" ({growth.why})" if growth.why else ""
        return fails(Reason.MEMORY_GROWTH, f"{where} grows by {slope} per {one} {times}{outside}")
    if growth.course is Course.UNDECIDED:
        unsure = f"whether memory grows {times} can't be told: {where} {growth.why}"
        return undecided(Reason.UNMEASURABLE, unsure)
    grown = growth.device.grown_bytes
    if grown > policy.max_memory_bytes:
        limit = size(policy.max_memory_bytes)
        return fails(Reason.MEMORY, f"{where} settles {size(grown)} higher {times}, the limit is {limit}")
    return holds(f"memory does not grow {times}")


# --- judging a series -----------------------------------------------------------------------------


def judge_series(series: MemorySeries) -> Growth:
    """Plateau or leak, from all figures of a series.

    The allocator's belongs to this process alone, the device's is everybody's: growth that only the latter
    shows counts where nothing disturbs it.
    """
    counts = series.counts
    device = trend(counts, series.device_used_bytes, DEVICE_STEP_BYTES)
    allocator = _measured_trend(counts, series.allocator_bytes, DEVICE_STEP_BYTES)
    host = _measured_trend(counts, series.host_rss_bytes, HOST_STEP_BYTES, HOST_FLOOR_BYTES)
    course, source, why = _decide(device, allocator, host)
    return Growth(
        activity=series.activity,
        repetitions=counts[-1] if counts else 0,
        points=len(counts),
        course=course,
        source=source,
        device=device,
        allocator=allocator,
        host=host,
        why=why,
    )


def _measured_trend(
    counts: Sequence[int], values: Sequence[int] | NotMeasured, step_bytes: int, floor_bytes: int = 0
) -> Trend | NotMeasured:
    return values if isinstance(values, NotMeasured) else trend(counts, values, step_bytes, floor_bytes)


def _decide(
    device: Trend, allocator: Trend | NotMeasured, host: Trend | NotMeasured
) -> tuple[Course, str, str]:
    """The course, the figure that decides it, and what must be said with it."""
    own = allocator.course if isinstance(allocator, Trend) else None
    still = own in (Course.FLAT, Course.PLATEAU)
    if own is Course.LEAK:
        return Course.LEAK, "allocator", ""
    if device.course is Course.LEAK and not (device.noisy and still):
        return Course.LEAK, "device", "the framework's allocator takes no more" if still else ""
    if isinstance(host, Trend) and host.course is Course.LEAK and not host.noisy:
        return Course.LEAK, "host", ""
    if device.course in (Course.LEAK, Course.UNDECIDED):
        beside = ", the framework's allocator takes no more: another process may move it" if still else ""
        return Course.UNDECIDED, "device", f"{device.why or 'moves to and fro while it grows'}{beside}"
    return device.course, "device", ""


# --- one figure -----------------------------------------------------------------------------------

_Points = Sequence[tuple[int, float]]
"""Repetitions and bytes."""


def trend(counts: Sequence[int], values: Sequence[int], step_bytes: int, floor_bytes: int = 0) -> Trend:
    """The course of one figure: ``values`` in bytes after ``counts`` repetitions, ascending.

    ``step_bytes`` is what its allocators take at a time; a half that spreads over no more than
    ``floor_bytes`` does not grow.
    """
    calm = _without_outliers(values)
    points = list(zip(counts, calm, strict=True))
    half = _second_half(points)
    grown = round(calm[-1] - values[0]) if calm else 0
    if len(half) < MIN_HALF_POINTS:
        few = f"was read at {len(half)} points of the second half, {MIN_HALF_POINTS} are needed"
        return Trend(Course.UNDECIDED, 0.0, grown, why=few)
    slope, spread = theil_sen(half), _spread(half)
    settled = Course.PLATEAU if min(y for _x, y in half) > values[0] else Course.FLAT
    if spread <= floor_bytes:
        return Trend(settled, slope, grown)
    falls = sum(max(0, one - other) for (_x, one), (_z, other) in pairwise(half))
    course, why = _noisy_course(half, slope, step_bytes) if falls else _rising_course(points, half)
    return Trend(course or settled, slope, grown, noisy=falls > step_bytes, why=why)


def _second_half(points: _Points) -> _Points:
    middle = (points[0][0] + points[-1][0]) / 2 if points else 0
    return [point for point in points if point[0] >= middle]


def _spread(points: _Points) -> float:
    return max(y for _x, y in points) - min(y for _x, y in points)


def _without_outliers(values: Sequence[int]) -> list[float]:
    """Running median of three; the last one by Tukey's rule, which extrapolates its neighbours.

    The first one, before any repetition, stays: growth is counted from it.
    """
    if len(values) < 4:
        return [float(value) for value in values]
    inner = [float(statistics.median(values[at - 1 : at + 2])) for at in range(1, len(values) - 1)]
    last = statistics.median((values[-1], inner[-1], 3 * inner[-1] - 2 * inner[-2]))
    return [float(values[0]), *inner, float(last)]


def theil_sen(points: _Points) -> float:
    """The median slope of all pairs of points with different x; 0 where there is none."""
    slopes = [(y - v) / (x - u) for (u, v), (x, y) in combinations(points, 2) if x != u]
    return statistics.median(slopes) if slopes else 0.0


def _rising_course(points: _Points, half: _Points) -> tuple[Course | None, str]:
    """Of a figure that never falls in the second half: whether it goes on to rise; None where it does not.

    A leak that fills block after block rises again after its longest distance at the latest.
    """
    start, end = half[0][0], half[-1][0]
    places = [x for (_u, v), (x, y) in pairwise(points) if y > v]
    late = [x for x in places if x > start]
    if not late:
        return None, ""
    longest = max(later - earlier for earlier, later in pairwise([points[0][0], *places]))
    quiet = end - late[-1]
    if quiet > longest and quiet >= (end - start) / 2:
        return Course.PLATEAU, ""
    if len(late) < MIN_RISES:
        times = "once" if len(late) == 1 else "twice"
        return Course.UNDECIDED, f"rose {times} in the second half, by {size(_spread(half))}"
    if quiet > longest or _slows_down(half):
        return Course.UNDECIDED, f"rose by {size(_spread(half))} in the second half, but less and less"
    return Course.LEAK, ""


def _slows_down(half: _Points) -> bool:
    middle = (half[0][0] + half[-1][0]) / 2
    at = max(y for x, y in half if x <= middle)
    before, after = at - half[0][1], half[-1][1] - at
    return after < SLOWING_SHARE * before


def _noisy_course(half: _Points, slope: float, step_bytes: int) -> tuple[Course | None, str]:
    """Of a figure that also falls: growth must stand out; None where it just moves within one block."""
    deviation = _deviation(half, slope)
    grown = slope * (half[-1][0] - half[0][0])
    if kendall_tau(half) >= STEADY_TAU and grown > NOISE_FACTOR * deviation:
        return Course.LEAK, ""
    if _spread(half) <= step_bytes:
        return None, ""
    return Course.UNDECIDED, f"moves to and fro by up to {size(_spread(half))}"


def _deviation(half: _Points, slope: float) -> float:
    """Median distance from the line of that slope."""
    rests = [y - slope * x for x, y in half]
    middle = statistics.median(rests)
    return statistics.median(abs(rest - middle) for rest in rests)


def kendall_tau(points: _Points) -> float:
    """Surplus of rising pairs over falling ones, as a share of all pairs; equal values count as neither."""
    signs = [math.copysign(1, y - v) if y != v else 0 for (_u, v), (_x, y) in combinations(points, 2)]
    return sum(signs) / len(signs) if signs else 0.0
