"""The whole diagnosis: window, head, empty timelines, JSON, and the worked example of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import numpy as np
import pytest
from made_timelines import NO_TIMES, call, diagnosed, example, kernel, request, times

from cudagraph_gate.diagnosis import diagnose
from cudagraph_gate.diagnosis.conclusion import NOTHING_RECORDED
from cudagraph_gate.model import Cause, Diagnosis, Distribution, NotMeasured, Prediction, Requests
from cudagraph_gate.timeline.table import KERNEL, OPERATION_COLUMNS, Timeline, TimelineMeta, frame

DEFINITIONS = Path(__file__).parents[2] / "docs" / "definitions.md"


def test_the_window_spans_the_requests_where_they_are_marked() -> None:
    rows = [kernel(0, 10), kernel(40, 50), kernel(90, 99)]
    (device,) = diagnosed(rows, [], [request(60, 95), request(30, 55)]).devices
    assert (device.window_ns, device.busy_ns) == (65, 15)


def test_the_window_spans_the_operations_where_no_request_is_marked() -> None:
    (device,) = diagnosed([kernel(20, 80, stream=8), kernel(10, 30)], [call(0, 5)]).devices
    assert device.window_ns == 70


def test_a_reversed_window_is_refused() -> None:
    with pytest.raises(ValueError, match="ends before it starts"):
        diagnosed([kernel(0, 10)], window=(10, 0))


def test_an_empty_timeline_says_so() -> None:
    diagnosis = diagnosed(problems=("CUPTI gave no record",))
    assert (diagnosis.devices, diagnosis.ranges, diagnosis.conclusion) == ((), (), NOTHING_RECORDED)
    assert diagnosis.problems == ("CUPTI gave no record",)
    assert diagnosis.launches.submissions == 0
    assert isinstance(diagnosis.requests, NotMeasured)
    assert isinstance(diagnosis.prediction, NotMeasured)


def test_the_recorder_is_named() -> None:
    diagnosis = diagnosed([kernel(0, 10)], level="light", simulated=True, resolution_ns=1000)
    assert (diagnosis.source, diagnosis.level) == ("by hand", "light")
    assert (diagnosis.simulated, diagnosis.resolution_ns) == (True, 1000)


def test_operations_without_a_submission_are_a_problem() -> None:
    diagnosis = diagnosed([kernel(0, 10, 1), kernel(20, 30, 2)], [call(-5, 0, 1)])
    assert diagnosis.problems == ("1 operations have no known submission: the idle before them is unknown",)


def test_a_diagnosis_survives_json() -> None:
    diagnosis = diagnose(example(), times(1000))
    assert msgspec.json.decode(msgspec.json.encode(diagnosis), type=Diagnosis) == diagnosis


def test_a_whole_request_is_predicted() -> None:
    prediction = diagnose(example(), times(9_000, copy_in_ns=50)).prediction
    assert isinstance(prediction, Prediction)
    assert prediction.request_ns == 50 + 450 + 2 * 200 + 4_000


def test_times_since_the_epoch_stay_exact() -> None:
    base = 1_700_000_000_000_000_001
    rows = [kernel(base, base + 100, 1), kernel(base + 151, base + 200, 2)]
    (device,) = diagnosed(rows, [call(base + 101, base + 120, 2)]).devices
    assert device.causes[Cause.HOST_WORK] == 1
    assert device.causes[Cause.HOST_API] == 19
    assert device.causes[Cause.LAUNCH_LATENCY] == 31


def test_many_operations_add_up() -> None:
    count = 20_000
    starts = np.arange(count) * 5
    values = {"kind": [KERNEL] * count, "start_ns": starts, "end_ns": starts + 3}
    timeline = Timeline(TimelineMeta(source="made", level="light"), frame(OPERATION_COLUMNS, values))
    (device,) = diagnose(timeline, NO_TIMES).devices
    assert (device.busy_ns, device.causes[Cause.UNKNOWN]) == (3 * count, 2 * (count - 1))


def documented(heading: str) -> dict[str, int]:
    """Names and numbers of the first table after a heading of docs/definitions.md."""
    section = DEFINITIONS.read_text().split(f"### {heading}\n", 1)[1].split("\n#", 1)[0]
    return {
        name: int(number) for name, number in re.findall(r"^\| `(\w+)` \| (\d+) \|", section, re.MULTILINE)
    }


def test_the_documented_causes_are_those_of_the_example() -> None:
    (device,) = diagnose(example(), NO_TIMES).devices
    expected = {"busy": device.busy_ns} | {str(cause): time for cause, time in device.causes.items() if time}
    assert documented("Where the time went") == expected
    assert sum(expected.values()) == device.window_ns == 2000


def test_the_documented_launches_and_requests_are_those_of_the_example() -> None:
    diagnosis = diagnose(example(), NO_TIMES)
    launches, requests = diagnosis.launches, diagnosis.requests
    assert isinstance(launches.submission_gap, Distribution)
    assert isinstance(requests, Requests)
    assert documented("Launches and requests") == {
        "submissions": launches.submissions,
        "submission_gap_p50_ns": launches.submission_gap.p50,
        "tklqt_ns": launches.tklqt_ns,
        "request_busy_ns": requests.busy_ns,
        "request_submission_idle_ns": requests.submission_idle_ns,
    }


def test_every_cause_is_defined() -> None:
    text = DEFINITIONS.read_text()
    assert [cause for cause in Cause if f"`{cause}`" not in text] == []
