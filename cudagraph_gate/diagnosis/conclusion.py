"""One sentence for a person on what the timeline shows."""

from __future__ import annotations

from typing import Final

from cudagraph_gate.diagnosis.causes import LONG_GAP_NS
from cudagraph_gate.diagnosis.limiter import FULLY_BUSY_SHARE, Limits, busiest
from cudagraph_gate.model import (
    Cause,
    DeviceIdle,
    Diagnosis,
    IdleCauses,
    IdleGaps,
    Launches,
    Limiter,
    Measured,
    NotMeasured,
    Prediction,
    ReplayPrediction,
    Requests,
    Segment,
)

NOTHING_RECORDED: Final = "No GPU work was recorded: there is nothing to judge."
NO_CANDIDATE: Final = "a graph is no candidate"
HOLE_SHARE: Final = 0.5
"""What holds this share of the time that is spoken of is named: everything else together is less."""

WORTH_SHARE: Final = 1 - FULLY_BUSY_SHARE
"""A graph that can't give back this share of the time has nothing to give back beyond the noise."""

WHAT_TOOK_THE_TIME: Final = {
    Limiter.NO_REQUEST: "nobody asked for work",
    Limiter.HOST_WAIT: "the submitting thread waited off the CPU (input, disk, network, locks)",
    Limiter.HOST_WORK: "the host did something else between pieces of GPU work",
    Limiter.SYNC: "the host waited for the GPU, or submitted only after such a wait",
    Limiter.DEPENDENCY: "the next operation waited for another stream, an event or a graph node",
    Limiter.PROFILER: "the recorder itself took the time",
    Limiter.UNKNOWN: "no cause is known",
}


def conclude(found: Diagnosis, limits: Limits | None) -> str:
    """The sentence. It speaks of the busiest device; ``limits`` are that device's, None where there is none.

    A graph is spoken of as a gain only where submission is the limiter.
    """
    if not found.devices or limits is None:
        return NOTHING_RECORDED
    device = found.devices[busiest(found.devices)]
    if isinstance(device.idle_ns, NotMeasured):
        return f"Idle time can't be measured: {device.idle_ns.reason}."
    if limits.limiter is Limiter.GPU:
        return f"The GPU is busy {_percent(limits.busy_share)}: a graph has nothing to give back."
    if limits.limiter is not Limiter.SUBMISSION:
        return _something_else(found, device, limits)
    said = _submission(found, limits)
    if isinstance(found.prediction, Prediction):
        return _predicted(said, found.prediction) + _not_captured(found.requests)
    return f"{said}{_besides(limits)}; {_without_times(found)}."


def _something_else(found: Diagnosis, device: DeviceIdle, limits: Limits) -> str:
    said = (
        f"The GPU is busy {_percent(limits.busy_share)} of {_whole(limits)}; "
        f"for {_percent(limits.share)} of it {WHAT_TOOK_THE_TIME[limits.limiter]}"
    )
    details = [_waits(found.launches)] if limits.limiter is Limiter.SYNC else [_holes(device)]
    if limits.limiter in (Limiter.HOST_WORK, Limiter.HOST_WAIT):
        details += [_where(found, device), _slow_call(device)]
    told = ", ".join(detail for detail in details if detail)
    return f"{said}{f' ({told})' if told else ''}: {NO_CANDIDATE}."


def _waits(launches: Launches) -> str:
    if not launches.blocking_calls:
        return ""
    call = launches.blocking_calls[0]
    return f"{call.name} {call.count:,} times for {launches.submissions:,} submissions"


def _holes(device: DeviceIdle) -> str:
    """What the long gaps hold, if it is most of the idle time."""
    gaps, idle_ns = device.idle_gaps, device.idle_ns
    if isinstance(idle_ns, NotMeasured) or not isinstance(gaps, IdleGaps):
        return ""
    long_ns = idle_ns - gaps.short_ns
    if gaps.longest_ns >= HOLE_SHARE * idle_ns:
        what, held_ns = f"one hole of {_text(gaps.longest_ns)} holds", gaps.longest_ns
    elif long_ns >= HOLE_SHARE * idle_ns:
        what, held_ns = f"gaps longer than {_text(LONG_GAP_NS)} hold", long_ns
    else:
        return ""
    return f"{what} {_percent(held_ns / idle_ns)} of the idle time"


def _where(found: Diagnosis, device: DeviceIdle) -> str:
    """The shortest user range that holds most of the host work."""
    work_ns = device.causes[Cause.HOST_WORK]
    holding = [
        one
        for one in found.ranges
        if isinstance(one.idle, IdleCauses)
        and one.idle.by_cause.get(Cause.HOST_WORK, 0) > HOLE_SHARE * work_ns
    ]
    return f"mostly in {min(holding, key=lambda one: one.wall_ns).name}" if holding else ""


def _slow_call(device: DeviceIdle) -> str:
    """The CUDA call in the longest gap, where such calls took more of the time than anything else did."""
    if device.causes[Cause.HOST_API] <= device.causes[Cause.HOST_WORK]:
        return ""
    calls = [idle.host_call for idle in device.top_idle if idle.cause is Cause.HOST_API and idle.host_call]
    return f"in CUDA calls, {calls[0]} longest" if calls else "in CUDA calls"


def _submission(found: Diagnosis, limits: Limits) -> str:
    share, requests = limits.share, found.requests
    if limits.requests_only and isinstance(requests, Requests):
        idle_ns = requests.submission_idle_ns
        share = share if isinstance(idle_ns, NotMeasured) else idle_ns / max(requests.wall.p50, 1)
    return (
        f"The GPU is busy {_percent(limits.busy_share)} of {_whole(limits)} "
        f"and idle for submission {_percent(share)} of it"
    )


def _besides(limits: Limits) -> str:
    """The next largest part, where it is about as large as that of submission."""
    others = {one: part for one, part in limits.parts_ns.items() if one is not limits.limiter}
    second = max(others, key=lambda one: others[one], default=limits.limiter)
    if others.get(second, 0) < HOLE_SHARE * limits.parts_ns[limits.limiter]:
        return ""
    return f"; for {_percent(others[second] / max(limits.whole_ns, 1))} {WHAT_TOOK_THE_TIME[second]}"


def _whole(limits: Limits) -> str:
    return "each request" if limits.requests_only else "the window"


def _without_times(found: Diagnosis) -> str:
    """What the segment with the most to gain could give back, where requests were not timed."""
    if isinstance(found.segments, NotMeasured):
        return f"no gain is predicted: {found.segments.reason}"
    best = _best_segment(found.segments)
    if best is None:
        return f"no sequence of operations repeats, so {NO_CANDIDATE}"
    segment, upper_ns = best
    what = f"a graph of {segment.operations} operations that repeat {segment.repeats:,} times"
    if isinstance(upper_ns, NotMeasured):
        return f"what {what} could give back is not known: {upper_ns.reason}"
    share = _share_of_window(found, segment, upper_ns)
    if share < WORTH_SHARE:
        return f"{what} could give back no more than {_percent(share)}: {NO_CANDIDATE}"
    return f"{what} could give back at most {_text(upper_ns)} of {_text(segment.wall.p50)} each time"


def _best_segment(segments: tuple[Segment, ...]) -> tuple[Segment, Measured] | None:
    """The first segment that is predicted, and its upper bound."""
    for segment in segments:
        if isinstance(segment.prediction, ReplayPrediction):
            return segment, segment.prediction.upper_bound_ns
    return None


def _share_of_window(found: Diagnosis, segment: Segment, upper_ns: int) -> float:
    return upper_ns * segment.repeats / max(found.devices[busiest(found.devices)].window_ns, 1)


def worth_trying(found: Diagnosis) -> bool:
    """Whether a graph deserves a trial, as far as a timeline tells."""
    if found.limiter is not Limiter.SUBMISSION:
        return False
    if isinstance(found.prediction, Prediction):
        return found.prediction.gain > 0
    best = None if isinstance(found.segments, NotMeasured) else _best_segment(found.segments)
    if best is None:
        return False
    segment, upper_ns = best
    if isinstance(upper_ns, NotMeasured):
        return False
    return _share_of_window(found, segment, upper_ns) >= WORTH_SHARE


def _predicted(submission: str, prediction: Prediction) -> str:
    change = (
        f"from {_text(prediction.normal_ns)} to {_text(prediction.request_ns)} "
        f"({-100 * prediction.gain:+.0f} %)"
    )
    upper_ns = prediction.upper_bound_ns
    if prediction.gain < 0 and not isinstance(upper_ns, NotMeasured) and prediction.copy_in_ns > upper_ns:
        return (
            f"Copying the inputs into static buffers ({_text(prediction.copy_in_ns)}) costs more than "
            f"submission wastes ({_text(upper_ns)}): a graph is predicted to be slower, {change}."
        )
    verb = "cut" if prediction.gain > 0 else "lengthen"
    return f"{submission}; a graph is predicted to {verb} a request {change}."


def _not_captured(requests: Requests | NotMeasured) -> str:
    if isinstance(requests, NotMeasured) or not requests.blocking_calls:
        return ""
    calls = "a blocking call" if requests.blocking_calls == 1 else f"{requests.blocking_calls} blocking calls"
    return f" But {calls} inside each request can't be captured."


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _text(duration_ns: int) -> str:
    return f"{duration_ns / 1e6:.2f} ms" if duration_ns >= 100_000 else f"{duration_ns / 1e3:.1f} µs"
