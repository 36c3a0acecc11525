"""One sentence for a person on what the timeline shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cudagraph_gate.model import (
    SUBMISSION_CAUSES,
    DeviceIdle,
    NotMeasured,
    Prediction,
    Requests,
)

NOTHING_RECORDED: Final = "No GPU work was recorded: there is nothing to judge."
FULLY_BUSY_SHARE: Final = 0.95
"""From this busy share on, what is left is within the run-to-run noise of GPU-bound workloads (about 5 %)."""


def conclude(
    devices: Sequence[DeviceIdle], requests: Requests | NotMeasured, prediction: Prediction | NotMeasured
) -> str:
    """The sentence; it speaks of the busiest device where requests are not marked."""
    if not devices:
        return NOTHING_RECORDED
    device = max(devices, key=lambda one: one.busy_ns)
    if isinstance(device.idle_ns, NotMeasured):
        return f"Idle time can't be measured: {device.idle_ns.reason}."
    busy, wasted = _shares(device, requests)
    if busy >= FULLY_BUSY_SHARE:
        return f"The GPU is busy {_percent(busy)}: a graph has nothing to give back."
    if isinstance(prediction, NotMeasured):
        of = "the window" if isinstance(requests, NotMeasured) else "each request"
        return (
            f"The GPU is busy {_percent(busy)} of {of} and idle for submission {_percent(wasted)} of it; "
            f"no gain is predicted: {prediction.reason}."
        )
    return _predicted(busy, wasted, prediction)


def _shares(device: DeviceIdle, requests: Requests | NotMeasured) -> tuple[float, float]:
    """Busy share and share that submission wastes, of a request where they are marked, else of the window."""
    if isinstance(requests, NotMeasured) or isinstance(requests.submission_idle_ns, NotMeasured):
        wasted_ns = sum(device.causes[cause] for cause in SUBMISSION_CAUSES)
        return device.busy_ns / device.window_ns, wasted_ns / device.window_ns
    wall_ns = max(requests.wall.p50, 1)
    return requests.busy_ns / wall_ns, requests.submission_idle_ns / wall_ns


def _predicted(busy: float, wasted: float, prediction: Prediction) -> str:
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
    return (
        f"The GPU is busy {_percent(busy)} of each request and idle for submission {_percent(wasted)} of it; "
        f"a graph is predicted to {verb} a request {change}."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _text(duration_ns: int) -> str:
    return f"{duration_ns / 1e6:.2f} ms" if duration_ns >= 100_000 else f"{duration_ns / 1e3:.1f} µs"
