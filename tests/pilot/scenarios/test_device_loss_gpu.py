"""Lost devices, hangs, epochs and requests given up on a GPU, in every framework that is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from framework_workloads import FRAMEWORKS
from lost_scenes import run_parts

from cudagraph_gate.device import DeviceChoice
from cudagraph_gate.model import SCENARIO_BY_NAME, GateStatus
from cudagraph_gate.records import Proof, ScenarioEnded

LIMIT_S = 120.0
"""Far longer than loading a framework takes; a hang has its own limit."""
FAULT = "CUDA_ERROR_ILLEGAL_ADDRESS from every later call"


def stood(folder: Path, scenario: str, framework: str, device: DeviceChoice) -> list[ScenarioEnded]:
    """What each worker of a scenario said; every proof must hold and every worker end as it must."""
    if framework != "port" and importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    path = folder / "model.py"
    path.write_text(FRAMEWORKS[framework])
    run, ends = run_parts(path, folder, scenario, device, limit_s=LIMIT_S)
    expected = SCENARIO_BY_NAME[scenario].ends
    assert tuple(end.outcome for end in ends) == expected, ends
    records = run.records()
    failed = [
        record for record in records if isinstance(record, Proof) and record.status is not GateStatus.PASS
    ]
    assert failed == []
    ended = [record for record in records if isinstance(record, ScenarioEnded)]
    assert [(each.status, each.seen) for each in ended if each.status is not GateStatus.PASS] == []
    return ended


@pytest.mark.parametrize("scenario", ["device-fault", "context-rebuild", "cancelled-request"])
def test_the_port_stands_them_on_the_simulated_device(tmp_path: Path, scenario: str) -> None:
    assert len(stood(tmp_path, scenario, "port", "simulated")) == len(SCENARIO_BY_NAME[scenario].ends)


@pytest.mark.gpu
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_illegal_write_costs_the_process_and_nothing_else(tmp_path: Path, framework: str) -> None:
    lost, new = stood(tmp_path, "device-fault", framework, "cuda")
    assert lost.seen.startswith(FAULT)
    assert new.seen.endswith("its outputs are those of the lost one, bit by bit")


@pytest.mark.gpu
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_hung_process_is_ended_and_gives_the_device_back(tmp_path: Path, framework: str) -> None:
    (new,) = stood(tmp_path, "hang", framework, "cuda")
    assert new.seen.startswith("ended by SIGABRT in ")


@pytest.mark.gpu
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_epoch_is_counted_up(tmp_path: Path, framework: str) -> None:
    (ended,) = stood(tmp_path, "context-rebuild", framework, "cuda")
    assert "only its epoch was counted up" in ended.seen


@pytest.mark.gpu
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_requests_that_are_given_up_leave_the_next_one_right(tmp_path: Path, framework: str) -> None:
    (ended,) = stood(tmp_path, "cancelled-request", framework, "cuda")
    assert "from another thread as well" in ended.seen
