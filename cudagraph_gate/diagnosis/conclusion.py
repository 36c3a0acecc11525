"""One sentence for a person on what the timeline shows."""

from __future__ import annotations

from typing import Final

from cudagraph_gate.diagnosis.limiter import FEWEST_OPERATIONS, FULLY_BUSY_SHARE, Limits
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
    Limiter.UNKNOWN: "what delayed the next operation is not known",
}


def conclude(found: Diagnosis, limits: Limits | None) -> str:
    """The sentence. It speaks of the device that ``limits`` are of; they are None where there is none.

    A graph is spoken of as a gain only where submission is the limiter.
    """
    if not found.devices or limits is None:
        return NOTHING_RECORDED
    device = found.devices[limits.place]
    gpu = "The GPU" if len(found.devices) == 1 else f"Device {device.device} of process {device.process}"
    if isinstance(device.idle_ns, NotMeasured):
        return f"Idle time can't be measured: {device.idle_ns.reason}."
    if device.operations < FEWEST_OPERATIONS:
        return f"{gpu} ran a single operation: too little to judge."
    busy = f"{gpu} is busy {_percent(limits.busy_share)}"
    if limits.limiter is Limiter.GPU:
        return f"{busy}: a graph has nothing to give back."
    if limits.limiter is not Limiter.SUBMISSION:
        return busy + _something_else(found, device, limits)
    said = busy + _submission(found, limits)
    if isinstance(found.prediction, Prediction):
        return _predicted(said, found.prediction) + _not_captured(found.requests)
    return f"{said}{_besides(limits)}; {_without_times(found, device)}."


def _something_else(found: Diagnosis, device: DeviceIdle, limits: Limits) -> str:
    said = f" of {_whole(limits)}; for {_percent(limits.share)} of it {WHAT_TOOK_THE_TIME[limits.limiter]}"
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
        what, held_ns = f"gaps longer than {_text(gaps.long_ns)} hold", long_ns
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
    return f" of {_whole(limits)} and idle for submission {_percent(share)} of it"


def _besides(limits: Limits) -> str:
    """The next largest part, where it is about as large as that of submission."""
    others = {one: part for one, part in limits.parts_ns.items() if one is not limits.limiter}
    second = max(others, key=lambda one: others[one], default=limits.limiter)
    if others.get(second, 0) < HOLE_SHARE * limits.parts_ns[limits.limiter]:
        return ""
    return f"; for {_percent(others[second] / max(limits.whole_ns, 1))} {WHAT_TOOK_THE_TIME[second]}"


def _whole(limits: Limits) -> str:
    return "each request" if limits.requests_only else "the window"


def _without_times(found: Diagnosis, device: DeviceIdle) -> str:
    """What the segment with the most to gain could give back, where requests were not timed."""
    if isinstance(found.segments, NotMeasured):
        return f"no gain is predicted: {found.segments.reason}"
    best = _best_segment(found.segments, device)
    if best is None and any(one.graph_launches for one in found.segments):
        return f"what repeats is launched as a graph already, so {NO_CANDIDATE}"
    if best is None:
        return f"no sequence of operations repeats, so {NO_CANDIDATE}"
    segment, upper_ns = best
    what = f"a graph of {_operations(segment)} that repeat {segment.repeats:,} times"
    if isinstance(upper_ns, NotMeasured):
        return f"what {what} could give back is not known: {upper_ns.reason}"
    share = _share_of_window(segment, upper_ns, device)
    if share < WORTH_SHARE:
        return f"{what} could give back no more than {_percent(share)}: {NO_CANDIDATE}"
    each = f"{what} could give back at most {_text(upper_ns)} of {_text(segment.wall.p50)} each time"
    return each + _prohibited(segment)


def _operations(segment: Segment) -> str:
    said = f"{segment.operations:,} operations"
    if segment.unit_operations < segment.operations:
        times = segment.operations // segment.unit_operations
        said += f" ({times:,} times the same {segment.unit_operations})"
    return said


def _prohibited(segment: Segment) -> str:
    """Calls that capture refuses in most repeats; a few of the first ones only warm up."""
    calls = [call.name for call in segment.prohibited_calls if 2 * call.count >= segment.repeats]
    return f"; but {', '.join(calls)} inside it can't be captured" if calls else ""


def _best_segment(segments: tuple[Segment, ...], device: DeviceIdle) -> tuple[Segment, Measured] | None:
    """The device's first segment that is predicted, and its upper bound."""
    for segment in segments:
        own = (segment.process, segment.device) == (device.process, device.device)
        if own and isinstance(segment.prediction, ReplayPrediction):
            return segment, segment.prediction.upper_bound_ns
    return None


def _share_of_window(segment: Segment, upper_ns: int, device: DeviceIdle) -> float:
    return upper_ns * segment.repeats / max(device.window_ns, 1)


def worth_trying(found: Diagnosis) -> bool:
    """Whether a graph deserves a trial, as far as a timeline tells."""
    if found.limiter is not Limiter.SUBMISSION:
        return False
    if isinstance(found.prediction, Prediction):
        return found.prediction.gain >= WORTH_SHARE
    if isinstance(found.segments, NotMeasured):
        return False
    shares = []
    for device in found.devices:
        segment, upper_ns = _best_segment(found.segments, device) or (None, 0)
        if segment is not None and not isinstance(upper_ns, NotMeasured):
            shares.append(_share_of_window(segment, upper_ns, device))
    return max(shares, default=0.0) >= WORTH_SHARE


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
    allowed = _contradiction(prediction)
    return f"{submission}; a graph is predicted to {verb} a request {change}{allowed}."


def _contradiction(prediction: Prediction) -> str:
    """Said where more is predicted than the recording shows to be lost."""
    upper_ns, saved_ns = prediction.upper_bound_ns, prediction.normal_ns - prediction.request_ns
    if isinstance(upper_ns, NotMeasured) or saved_ns <= (1 + WORTH_SHARE) * upper_ns:
        return ""
    return f", though submission wastes only {_text(upper_ns)} of it"


def _not_captured(requests: Requests | NotMeasured) -> str:
    if isinstance(requests, NotMeasured) or not requests.blocking_calls:
        return ""
    calls = "a blocking call" if requests.blocking_calls == 1 else f"{requests.blocking_calls} blocking calls"
    return f" But {calls} inside each request can't be captured as it is."


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _text(duration_ns: int) -> str:
    if duration_ns >= 10_000_000_000:
        return f"{duration_ns / 1e9:.1f} s"
    return f"{duration_ns / 1e6:.2f} ms" if duration_ns >= 100_000 else f"{duration_ns / 1e3:.1f} µs"
