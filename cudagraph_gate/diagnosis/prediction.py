"""What a graph would give one request, predicted from the normal path alone."""

from __future__ import annotations

from typing import Final

from cudagraph_gate.model import NotMeasured, Prediction, ProfileTimes, Requests

NODE_GAP_NS: Final = 200
"""Idle between dependent nodes of one graph, for the prediction itself: fits eleven workloads on an H200
best (docs/measurements), and lies within the range of their medians."""
NODE_GAP_LOW_NS: Final = 130
"""Shortest median gap between nodes measured on H200."""
NODE_GAP_HIGH_NS: Final = 420
"""Longest median gap between nodes measured on H200."""
GRAPH_LAUNCH_NS: Final = 4_000
"""One graph launch: 2.9 µs for the call in steady state (H200), 1 µs until the first node starts."""


def predict(
    requests: Requests | NotMeasured, times: ProfileTimes | NotMeasured, *, graph_launches: int = 0
) -> Prediction | NotMeasured:
    """Predict a graph request: copy the inputs in, launch once, run all operations with node gaps.

    The median busy union of a request stands for the critical path of its operations. ``graph_launches`` is
    how many graphs the recorded path launched already. The constants are those of a GPU, also for the
    simulated device.
    """
    if isinstance(requests, NotMeasured):
        return requests
    if isinstance(times, NotMeasured):
        return times
    if isinstance(requests.submission_idle_ns, NotMeasured):
        # What hides idle hides busy time too, and too little busy time predicts too much gain.
        return requests.submission_idle_ns
    if times.latency.p50 <= 0:
        return NotMeasured(reason="the median request without the recorder took no time")
    replay_ns = _replay_ns(requests, NODE_GAP_NS)
    request_ns = times.copy_in_ns + replay_ns
    return Prediction(
        normal_ns=times.latency.p50,
        replay_ns=replay_ns,
        replay_low_ns=_replay_ns(requests, NODE_GAP_LOW_NS),
        replay_high_ns=_replay_ns(requests, NODE_GAP_HIGH_NS),
        copy_in_ns=times.copy_in_ns,
        request_ns=request_ns,
        gain=1 - request_ns / times.latency.p50,
        upper_bound_ns=requests.submission_idle_ns,
        assumptions=_assumptions(requests, times, graph_launches),
    )


def _replay_ns(requests: Requests, node_gap_ns: int) -> int:
    return requests.busy_ns + requests.operations * node_gap_ns + GRAPH_LAUNCH_NS


def _assumptions(requests: Requests, times: ProfileTimes, graph_launches: int) -> tuple[str, ...]:
    said = [
        "GPU operations take as long in the graph as in the recording, and the graph holds the same ones",
        f"a gap of {NODE_GAP_NS} ns follows each node (measured: {NODE_GAP_LOW_NS} to {NODE_GAP_HIGH_NS} ns)",
        "inputs are copied into static buffers for each request, in the time measured for it",
        f"the recorder made a request {times.recorded_latency.p50 / times.latency.p50:.2f} times as long",
    ]
    if not requests.stable:
        share = f"{100 * requests.unstable_share:.0f} %"
        said.append(f"{share} of the requests ran another sequence: medians stand for all")
    if requests.blocking_calls:
        said.append(
            f"{requests.blocking_calls} blocking calls inside a request go away: none can be captured"
        )
    if graph_launches:
        said.append(f"the recorded path launched {graph_launches} graphs already")
    return tuple(said)
