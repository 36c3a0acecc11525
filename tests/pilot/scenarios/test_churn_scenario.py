"""Memory that is freed, handed out again and overwritten between replays."""

from __future__ import annotations

from pathlib import Path

import pytest
from pilot_workloads import OF_ITS_OWN
from scenes import seen

from cudagraph_gate.model import GateStatus, Reason
from cudagraph_gate.records import Method

OWN = (
    OF_ITS_OWN
    + """
def build_graphed(shape):
    return build(shape)
"""
)


@pytest.mark.parametrize(("method", "text"), [("capture", OF_ITS_OWN), ("own", OWN)])
def test_what_reads_only_what_it_holds_stands_it(tmp_path: Path, method: Method, text: str) -> None:
    found = seen(tmp_path, "allocator-churn", text, method=method)
    assert (found.ended.status, found.failed_proofs) == (GateStatus.PASS, [])
    assert found.ended.seen.endswith("are right while all that was freed is reused and overwritten")


def test_an_own_path_that_keeps_reading_the_inputs_of_its_capture_is_found(tmp_path: Path) -> None:
    found = seen(
        tmp_path,
        "allocator-churn",
        OF_ITS_OWN
        + """
def build_graphed(shape):
    work, first = array(), []

    def graphed(x):
        first.append(x)
        if len(first) > 12:
            device.copy(work, first[0])
        else:
            device.copy(work, x)
        for k in range(4):
            add(work, k)
        return work

    return graphed
""",
        method="own",
    )
    assert found.ended.status is GateStatus.FAIL
    assert found.ended.code in (Reason.LIFETIME, Reason.WRONG_OUTPUT)
