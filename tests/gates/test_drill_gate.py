"""Gate 7: the drill's traffic, latency and memory, from logs written down by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from attack_evidence import attack, attacked_trial, end, ended, proof
from evidence_builder import passing, trial

from cudagraph_gate.gates import Policy, judge
from cudagraph_gate.model import DRILL, Decision, GateResult, GateStatus, NotMeasured, Reason
from cudagraph_gate.records import DrillRun, Record

PASS, FAIL, UNKNOWN = GateStatus.PASS, GateStatus.FAIL, GateStatus.UNKNOWN
MIB = 1 << 20
REQUESTS = 20
Change = Callable[[DrillRun], dict[str, Any]]


def blocks(change: Change = lambda _run: {}, *, before: int = 8, after: int = 8) -> list[DrillRun]:
    """A drill in which all is well, each block changed by what ``change`` says of it."""
    stretches = ["before"] * before + ["graph"] * 2 + ["switch"] + ["after"] * after
    made = []
    for order, stretch in enumerate(stretches):
        base = 1_000_000 if stretch != "graph" else 300_000
        run = {
            "shape": "b1",
            "stretch": stretch,
            "order": order,
            "threads": 2,
            "latencies_ns": tuple(
                base + 1_000 * (number % 5) + 100 * (order % 3) for number in range(REQUESTS)
            ),
            "sent": REQUESTS,
            "answered": REQUESTS,
            "wrong": 0,
            "graph_served": {"graph": REQUESTS, "switch": 7}.get(stretch, 0),
            "in_flight": 2 if stretch == "switch" else 0,
            "device_used_bytes": 512 * MIB,
            "allocator_bytes": 100 * MIB,
            "occupied_bytes": 90 * MIB,
        }
        made.append(DrillRun(**(run | change(DrillRun(**run)))))
    return made


def gate(runs: Sequence[Record], **answered: Any) -> GateResult:
    log = (*runs, proof(DRILL), ended(DRILL, **answered), end(DRILL))
    records = attacked_trial({DRILL: log})
    (found,) = [each for each in judge(passing(records=records), Policy()).gates if each.number == 7]
    return found


def only(stretch: str, **fields: Any) -> Change:
    """A change to the blocks of one stretch."""
    return lambda run: fields if run.stretch == stretch else {}


def slower(stretch: str, factor: float) -> Change:
    return lambda run: (
        {"latencies_ns": tuple(round(each * factor) for each in run.latencies_ns)}
        if run.stretch == stretch
        else {}
    )


def test_it_holds_where_all_is_as_before() -> None:
    found = gate(blocks())
    assert (found.status, found.code) == (PASS, None)
    assert (
        found.reason
        == "380 requests answered, 2 in flight at the switch; P50 as before; P95 as before; memory as before"
    )
    assert found.measured["requests"] == 19 * REQUESTS
    assert found.measured["p50"]["ratio"] == pytest.approx(1, abs=1e-3)
    assert found.measured["device_grown_bytes"] == 0


def test_without_a_drill_it_is_unknown() -> None:
    (found,) = [each for each in judge(passing(records=trial()), Policy()).gates if each.number == 7]
    assert (found.status, found.code, found.reason) == (UNKNOWN, Reason.NOT_TRIED, "the drill was not tried")


def test_a_skipped_drill_is_unknown() -> None:
    records = (*trial(), *attack(skipped={DRILL: "--skip"}))
    (found,) = [each for each in judge(passing(records=records), Policy()).gates if each.number == 7]
    assert (found.status, found.reason) == (UNKNOWN, "scenario drill was skipped (--skip)")


def test_a_lost_request_refuses() -> None:
    found = gate(blocks(only("switch", answered=REQUESTS - 1)))
    assert (found.status, found.code) == (FAIL, Reason.WRONG_OUTPUT)
    assert "1 of 380 requests of the drill were never answered" in found.reason


@pytest.mark.parametrize("stretch", ["before", "graph", "switch", "after"])
def test_a_wrong_request_refuses_wherever_it_is(stretch: str) -> None:
    found = gate(blocks(only(stretch, wrong=1, detail="request 0: output differs")))
    assert (found.status, found.code) == (FAIL, Reason.WRONG_OUTPUT)
    assert f"({stretch}): request 0: output differs" in found.reason


def test_a_slower_normal_path_refuses() -> None:
    found = gate(blocks(slower("after", 1.2)))
    assert (found.status, found.code) == (FAIL, Reason.REGRESS)
    assert "P50 of the normal path 1.00 ms before and 1.20 ms after the drill" in found.reason


def test_a_faster_normal_path_is_as_good() -> None:
    assert gate(blocks(slower("after", 0.8))).status is PASS


def test_a_tail_that_grew_refuses_though_the_median_is_as_before() -> None:
    def tail(run: DrillRun) -> dict[str, Any]:
        return {"latencies_ns": (*run.latencies_ns[:-3], *[3_000_000] * 3)} if run.stretch == "after" else {}

    found = gate(blocks(tail))
    assert (found.status, found.code) == (FAIL, Reason.REGRESS)
    assert found.reason.startswith("P95 of the normal path")


def test_what_the_noise_hides_is_unknown() -> None:
    def noisy(run: DrillRun) -> dict[str, Any]:
        factor = (1.0, 1.9)[run.order % 2] if run.stretch == "before" else 1.3
        return {"latencies_ns": tuple(round(each * factor) for each in run.latencies_ns)}

    found = gate(blocks(noisy))
    assert (found.status, found.code) == (UNKNOWN, Reason.UNMEASURABLE)


@pytest.mark.parametrize(("before", "status"), [((1.0, 1.1), PASS), ((1.0, 1.0), FAIL)])
def test_a_difference_no_larger_than_that_of_the_normal_path_from_itself_holds(
    before: tuple[float, float], status: GateStatus
) -> None:
    def noisy(run: DrillRun) -> dict[str, Any]:
        factors = {"before": before, "after": (1.0, 1.12)}.get(run.stretch, (1.0, 1.0))
        return {"latencies_ns": tuple(round(each * factors[run.order % 2]) for each in run.latencies_ns)}

    assert gate(blocks(noisy)).status is status


def test_too_few_blocks_are_unknown() -> None:
    assert gate(blocks(before=1)).status is UNKNOWN
    assert gate(blocks(after=0)).status is UNKNOWN


def test_without_a_request_in_flight_at_the_switch_nothing_was_shown() -> None:
    found = gate(blocks(only("switch", in_flight=0)))
    assert (found.status, found.code) == (UNKNOWN, Reason.UNMEASURABLE)


def test_where_no_graph_served_nothing_was_shown() -> None:
    found = gate(blocks(only("graph", graph_served=0)))
    assert (found.status, found.code) == (UNKNOWN, Reason.NO_GRAPH_USED)


def test_a_graph_that_serves_after_the_switch_refuses() -> None:
    found = gate(blocks(only("after", graph_served=1)))
    assert (found.status, found.code) == (FAIL, Reason.LIFETIME)


def test_a_drill_that_never_switched_is_unknown() -> None:
    found = gate([run for run in blocks() if run.stretch == "before"])
    assert found.status is UNKNOWN


@pytest.mark.parametrize(
    ("device", "allocator", "occupied", "answer"),
    [
        (512 + 31, 100, 90, (PASS, None)),
        (512 + 40, 140, 90, (PASS, None)),  # it lies free between others
        (512 + 40, 140, 130, (FAIL, Reason.MEMORY_GROWTH)),
        (600, 100, 90, (UNKNOWN, Reason.UNMEASURABLE)),  # it may be another process's
        (600, None, None, (FAIL, Reason.MEMORY_GROWTH)),
        (None, 100, 90, (UNKNOWN, Reason.UNMEASURABLE)),
    ],
)
def test_memory_must_be_as_before(
    device: int | None,
    allocator: int | None,
    occupied: int | None,
    answer: tuple[GateStatus, Reason | None],
) -> None:
    figures = {"device_used_bytes": device, "allocator_bytes": allocator, "occupied_bytes": occupied}
    unread = NotMeasured(reason="not read")
    after = {name: unread if mib is None else mib * MIB for name, mib in figures.items()}
    found = gate(blocks(only("after", **after)))
    assert (found.status, found.code) == answer


def test_what_the_worker_itself_found_refuses() -> None:
    found = gate(blocks(), status=FAIL, code=Reason.WRONG_OUTPUT, seen="a thread failed")
    assert (found.status, found.code) == (FAIL, Reason.WRONG_OUTPUT)


def test_a_drill_that_does_not_apply_holds() -> None:
    assert gate((), applies=False, seen="nothing to turn off").status is PASS


# --- the verdict, with all seven gates ------------------------------------------------------------


def verdict_of(skipped: dict[str, str] | None = None, drill: Sequence[DrillRun] | None = None) -> Decision:
    """Where everything holds but for what is skipped, and for the drill's blocks."""
    log = (*(blocks() if drill is None else drill), proof(DRILL), ended(DRILL), end(DRILL))
    logs = {} if DRILL in (skipped or {}) else {DRILL: log}
    return judge(passing(records=attacked_trial(logs, skipped)), Policy()).verdict


def test_where_all_seven_gates_hold_it_is_go() -> None:
    assert verdict_of() is Decision.GO


@pytest.mark.parametrize("scenario", [DRILL, "hang", "capture-failure"])
def test_no_scenario_may_be_left_out_of_a_go(scenario: str) -> None:
    assert verdict_of({scenario: "--quick"}) is Decision.INCONCLUSIVE


def test_a_drill_that_fails_is_no_go() -> None:
    assert verdict_of(drill=blocks(slower("after", 1.5))) is Decision.NO_GO
