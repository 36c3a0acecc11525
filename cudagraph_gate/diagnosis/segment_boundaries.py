"""Where the repeats of a segment begin and end, with marks where there are any and without."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from cudagraph_gate.diagnosis.segment_alike import Alike, groups_of_alike
from cudagraph_gate.diagnosis.segment_periods import MIN_REPEATS, find_period
from cudagraph_gate.diagnosis.segment_tokens import Lane
from cudagraph_gate.diagnosis.submission import flags, ints
from cudagraph_gate.timeline.intervals import Bools, Int64, int64
from cudagraph_gate.timeline.table import DIGITS, REQUEST_DOMAIN, Timeline

MIN_OPERATIONS: Final = 2
"""A graph of one operation saves nothing: a launch is a launch."""
COMMON_SHARE: Final = 0.5
"""Runs of which half are equal end where the work ends; others may be cut after some number of units."""
COVERED_SHARE: Final = 0.5
"""A range that marks iterations holds most of what the thread submitted."""
EQUAL_COVERAGE: Final = 0.9
"""Of ranges that hold nearly as much as the best one, the outermost marks the iteration."""
OPERATOR_DOMAIN: Final = "cpu_op"
"""Operators of a framework: thousands of names, of which few mark an iteration."""
ROUNDS: Final = 3
"""Searches for a period, each in what the ones before left: training, then evaluation, then a third."""
WORTH_A_ROUND: Final = 0.05
"""Share of the thread's tokens below which what is left is not searched again."""
TOO_LONG: Final = 2
"""A unit of so many periods has run over its end into other work: it is cut after one."""
MOST_JUDGED: Final = 1 << 17
"""Tokens whose gaps are looked at to see whether units end in a pause."""
VISIBLE_GAP: Final = 2.0
"""A median gap between units so many times as long as the median gap inside shows where one ends."""


@dataclass(frozen=True)
class Repeats:
    """Slices [first, beyond) of a lane's tokens that are one segment's repeats, in order and disjoint."""

    marked_by: str
    """Name of the range that marks an iteration; empty if none does."""
    first: Int64
    beyond: Int64
    is_unit: bool = False
    """Found by its period alone: no mark and no blocking call says where it ends."""
    is_back_to_back: bool = False
    """Nor does a longer pause: the next repeat goes on where it ends."""


def repeats_of(operations: pd.DataFrame, lane: Lane, timeline: Timeline) -> list[Repeats]:
    """The segments of a lane: by requests, else by user ranges, else by blocking calls and periods, else by
    operators of the framework."""
    blocking = blocking_calls(lane, timeline)
    cuts = np.union1d(blocking_places(lane, blocking), np.flatnonzero(lane.blocking))
    marked = _by_marks(lane, timeline.requests(), cuts) or _by_ranges(lane, timeline, cuts, operators=False)
    return (
        marked
        or _by_repetition(operations, lane, int64(cuts))
        or _by_ranges(lane, timeline, cuts, operators=True)
    )


def blocking_calls(lane: Lane, timeline: Timeline) -> pd.DataFrame:
    """Blocking calls of the lane's thread, in time order."""
    calls = of_thread(timeline.calls, lane)
    return calls[flags(calls, "blocking")].sort_values("start_ns", kind="stable")


def blocking_places(lane: Lane, calls: pd.DataFrame) -> Int64:
    """The first token after each blocking call; a call that submitted a token itself stands before it.

    Its end decides: what was submitted before has ended by then, also where only device times are known.
    """
    places = np.searchsorted(lane.moment_ns, ints(calls, "end_ns"), side="left")
    own = np.searchsorted(lane.moment_ns, ints(calls, "start_ns"), side="left")
    itself = np.append(lane.blocking, False)[own] & lane.is_submission_known
    return int64(np.where(itself, own, places))


def of_thread(frame: pd.DataFrame, lane: Lane) -> pd.DataFrame:
    """Rows of the lane's process and, as far as threads are known, of its thread."""
    chosen: Bools = frame["process"].to_numpy() == lane.process
    if lane.thread:
        threads = ints(frame, "thread")
        chosen = chosen & ((threads == lane.thread) | (threads == 0))
    return frame[chosen]


def parts(first: Int64, beyond: Int64, cuts: Int64) -> tuple[Int64, Int64, Int64]:
    """Cut disjoint slices at ``cuts``: first and beyond of each part, and its place within its slice."""
    if not len(first):
        return first, beyond, first
    borders = np.unique(np.concatenate([first, beyond, cuts]))
    starts, ends = borders[:-1], borders[1:]
    owner = np.searchsorted(first, starts, side="right") - 1
    inside = (owner >= 0) & (starts < beyond[np.maximum(owner, 0)])
    starts, ends, owner = starts[inside], ends[inside], owner[inside]
    place = np.arange(len(owner)) - np.searchsorted(owner, owner, side="left")
    return int64(starts), int64(ends), int64(place)


# --- marks ----------------------------------------------------------------------------------------
def _by_marks(lane: Lane, marks: pd.DataFrame, cuts: Int64, name: str = "") -> list[Repeats]:
    """Segments between marks: those of the lane's thread, else those of its process."""
    own = of_thread(marks, lane)
    chosen = own if len(own) else marks[marks["process"].to_numpy() == lane.process]
    starts, ends = ints(chosen, "start_ns"), ints(chosen, "end_ns")
    if len(chosen) < MIN_REPEATS or (starts[1:] < ends[:-1]).any():
        return []
    first, beyond = _inside(lane, starts, ends)
    marked_by = name or _stem(str(chosen["name"].iloc[0]))
    return list(_by_place(lane, marked_by, *parts(first, beyond, cuts)))


def _inside(lane: Lane, starts: Int64, ends: Int64) -> tuple[Int64, Int64]:
    """Tokens submitted during each interval; intervals without any are left out."""
    first = np.searchsorted(lane.moment_ns, starts, side="left")
    beyond = np.searchsorted(lane.moment_ns, ends, side="left")
    some = first < beyond
    return int64(first[some]), int64(beyond[some])


def _by_place(lane: Lane, marked_by: str, first: Int64, beyond: Int64, place: Int64) -> Iterator[Repeats]:
    """Parts at the same place in their iteration are the repeats of one segment."""
    operations = lane.operations_in(first, beyond)
    for number in np.unique(place):
        own = place == number
        if own.sum() >= MIN_REPEATS and np.median(operations[own]) >= MIN_OPERATIONS:
            yield Repeats(marked_by, first[own], beyond[own])


# --- user ranges ----------------------------------------------------------------------------------
def _by_ranges(lane: Lane, timeline: Timeline, cuts: Int64, *, operators: bool) -> list[Repeats]:
    ranges = timeline.ranges
    is_operator = (ranges["domain"] == OPERATOR_DOMAIN).to_numpy()
    is_ours = (ranges["domain"] == REQUEST_DOMAIN).to_numpy()
    ranges = ranges[(is_operator == operators) & ~is_ours & (ranges["process"].to_numpy() == lane.process)]
    for candidates in (of_thread(ranges, lane), ranges):
        chosen = _iterations(lane, candidates)
        if chosen is not None:
            return _by_marks(lane, chosen, cuts, _stem(str(chosen["name"].iloc[0])))
    return []


def _stem(name: str) -> str:
    """A name without its running number: ``ProfilerStep#12`` is ``ProfilerStep``."""
    return name.rstrip(DIGITS).rstrip("#_- :") or name


def _iterations(lane: Lane, ranges: pd.DataFrame) -> pd.DataFrame | None:
    """The ranges of the one name that marks iterations, in time order; None if no name does."""
    if ranges.empty:
        return None
    ranges = ranges.sort_values(["start_ns", "end_ns"], kind="stable")
    stems = np.array([_stem(str(name)) for name in ranges["name"].cat.categories], dtype=object)
    key = int64(pd.factorize(stems)[0])[ranges["name"].cat.codes.to_numpy()]
    key = key * (len(ranges["domain"].cat.categories) + 1) + ranges["domain"].cat.codes.to_numpy()
    key = int64(pd.factorize(key)[0])
    first = np.searchsorted(lane.moment_ns, ints(ranges, "start_ns"), side="left")
    beyond = np.searchsorted(lane.moment_ns, ints(ranges, "end_ns"), side="left")
    operations = lane.operations_in(int64(first), int64(np.maximum(first, beyond)))
    count = np.bincount(key[operations > 0], minlength=int(np.max(key)) + 1)
    held = np.bincount(key, operations, minlength=len(count))
    fits = (count >= MIN_REPEATS) & (held >= MIN_OPERATIONS * count) & ~_overlapping(key, ranges, len(count))
    held[~fits] = 0
    if np.max(held) < COVERED_SHARE * len(lane.rows):
        return None
    good = np.flatnonzero(held >= EQUAL_COVERAGE * np.max(held))
    # Fewer ranges for the same work enclose more each; equal ones are listed by their first start.
    chosen: pd.DataFrame = ranges[key == good[np.argmin(count[good])]]
    return chosen


def _overlapping(key: Int64, ranges: pd.DataFrame, count: int) -> Bools:
    """Which keys have ranges that overlap; ``ranges`` are in order of start."""
    order = np.argsort(key, kind="stable")
    same = key[order[1:]] == key[order[:-1]]
    early = ints(ranges, "start_ns")[order[1:]] < ints(ranges, "end_ns")[order[:-1]]
    found = np.zeros(count, dtype=np.bool_)
    found[key[order[1:]][same & early]] = True
    return found


# --- repetition -----------------------------------------------------------------------------------
def _by_repetition(operations: pd.DataFrame, lane: Lane, cuts: Int64) -> list[Repeats]:
    """Runs between blocking calls that repeat; in what is left, units that a period search finds."""
    first, beyond, _ = parts(int64([0]), int64([len(lane)]), cuts)
    groups = _groups(lane, first, beyond)
    regular = [_runs(one, first, beyond) for one in groups if one.common_share >= COMMON_SHARE]
    others = [_runs(one, first, beyond) for one in groups if one.common_share < COMMON_SHARE]
    found = regular + (_units_of(operations, lane, others, first, cuts) or others)
    left = np.ones(len(lane), dtype=np.bool_)
    for repeats in found:
        left &= ~_inside_of(repeats, len(lane))
    for _ in range(ROUNDS):
        if left.sum() < max(WORTH_A_ROUND * len(lane), MIN_REPEATS):
            break
        units = _units(operations, lane, left, first, cuts)
        if not units:
            break
        for repeats in units:
            left &= ~_inside_of(repeats, len(lane))
        left = _without_ends(left, max(int(np.max(one.beyond - one.first)) for one in units))
        found += units
    return found


def _without_ends(left: Bools, length: int) -> Bools:
    """Without stretches shorter than two units: ends of loops that were found, not loops of their own."""
    borders = np.flatnonzero(np.diff(left, prepend=False, append=False))
    starts, ends = borders[::2], borders[1::2]
    long = ends - starts >= 2 * length
    return _inside_of(Repeats("", int64(starts[long]), int64(ends[long])), len(left))


def _runs(group: Alike, first: Int64, beyond: Int64) -> Repeats:
    return Repeats("", first[group.members], beyond[group.members])


def _units_of(
    operations: pd.DataFrame, lane: Lane, runs: list[Repeats], all_runs: Int64, cuts: Int64
) -> list[Repeats]:
    """The shorter unit that the runs are so and so many times; empty if there is none."""
    if not runs:
        return []
    own = np.any([_inside_of(one, len(lane)) for one in runs], axis=0)
    units = _units(operations, lane, own, all_runs, cuts)
    if not units:
        return []
    unit = np.concatenate([one.beyond - one.first for one in units])
    whole = np.concatenate([one.beyond - one.first for one in runs])
    is_shorter = 2 * np.median(unit) <= np.median(whole) and unit.sum() >= COVERED_SHARE * own.sum()
    return units if is_shorter else []


def _groups(lane: Lane, first: Int64, beyond: Int64) -> list[Alike]:
    """Slices by likeness, without those of single operations; each group repeats."""
    long = np.flatnonzero(lane.operations_in(first, beyond) >= MIN_OPERATIONS)
    if len(long) < MIN_REPEATS:
        return []
    groups = groups_of_alike(lane.codes, first[long], beyond[long])
    return [replace(one, members=long[one.members]) for one in groups if len(one.members) >= MIN_REPEATS]


def _inside_of(repeats: Repeats, count: int) -> Bools:
    """Whether each of ``count`` tokens lies in a repeat."""
    steps = np.zeros(count + 1, dtype=np.int8)
    # A repeat may begin where the one before ends, so the two changes are added, not written.
    steps[repeats.first] += 1
    steps[repeats.beyond] -= 1
    return np.cumsum(steps, dtype=np.int8)[:count] > 0


def _units(operations: pd.DataFrame, lane: Lane, left: Bools, runs: Int64, cuts: Int64) -> list[Repeats]:
    """Repeated units in the tokens that are ``left``; empty if no period explains them."""
    places = np.flatnonzero(left)
    codes, at = _with_borders(lane.codes[places], places, runs)
    held = len(lane.rows) / len(lane)
    shortest = 1 if held >= MIN_OPERATIONS else MIN_OPERATIONS
    period = find_period(codes, lambda part: lane.gaps_ns(operations, np.maximum(at[part], 0)), shortest)
    if period is None or not len(period.places):
        return []
    first, beyond = _slices(codes, period.places, period.length)
    first, beyond = at[first], at[beyond - 1] + 1
    starts, ends, place = parts(first, beyond, cuts)
    return [
        _unit(operations, lane, repeats.first[group.members], repeats.beyond[group.members])
        for repeats in _by_place(lane, "", starts, ends, place)
        for group in _groups(lane, repeats.first, repeats.beyond)
    ]


def _with_borders(codes: Int64, places: Int64, runs: Int64) -> tuple[Int64, Int64]:
    """The codes with a border of its own between runs, and where other work was taken out; and the place in
    the lane of each (-1 for a border)."""
    jumps = np.flatnonzero(places[1:] - places[:-1] != 1) + 1
    at_run = np.searchsorted(places, runs)
    broken = np.union1d(jumps, at_run[(at_run > 0) & (at_run < len(places))])
    if not len(broken):
        return codes, places
    borders = -1 - np.arange(len(broken), dtype=np.int64)
    return np.insert(codes, broken, borders), np.insert(places, broken, -1)


def _slices(codes: Int64, begins: Int64, length: int) -> tuple[Int64, Int64]:
    """From each unit's beginning to the next one's; one period where that is far, and up to a border."""
    after = np.append(begins[1:], len(codes))
    after = np.where(after - begins >= TOO_LONG * length, begins + length, after)
    borders = np.append(np.flatnonzero(codes < 0), len(codes))
    beyond = np.minimum(after, borders[np.searchsorted(borders, begins, side="left")])
    last_is_whole = beyond[-1] - begins[-1] >= length or len(begins) == 1
    count = len(begins) if last_is_whole else len(begins) - 1
    return begins[:count], int64(beyond[:count])


def _unit(operations: pd.DataFrame, lane: Lane, first: Int64, beyond: Int64) -> Repeats:
    """The repeats of a unit, and whether a longer pause shows where each ends (judged by the first ones)."""
    after = np.arange(first[0] + 1, min(first[0] + MOST_JUDGED, beyond[-1]))
    is_between = np.isin(after, first)
    touching = np.mean(first[1:] == beyond[:-1]) > COVERED_SHARE
    if not is_between.any() or not touching:
        return Repeats("", first, beyond, True)
    gaps = lane.gaps_ns(operations, after)
    between = np.median(gaps[is_between])
    within = np.median(gaps[~is_between]) if not is_between.all() else between
    return Repeats("", first, beyond, True, bool(between <= VISIBLE_GAP * within))
