"""The workload's own graph path: built, warmed up, judged like ours, and blamed where it fails."""

from __future__ import annotations

import statistics
import weakref
from pathlib import Path
from typing import Any

import pytest
from opened_sessions import Opened, opened, opened_sample
from pilot_workloads import try_workload

from cudagraph_gate.errors import DeviceError, WorkloadError
from cudagraph_gate.model import GateStatus, Reason
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.blame import blame
from cudagraph_gate.pilot.graph_path import WARM_UP_REQUESTS
from cudagraph_gate.pilot.measure import (
    BLOCKS_PER_PATH,
    CALIBRATION,
    Request,
    blocks,
    graph_request,
    normal_request,
)
from cudagraph_gate.pilot.own_path import OwnPath
from cudagraph_gate.records import PathName, Phase

SAME = """
        def build_graphed(shape):
            return step
        """


def made(folder: Path, text: str) -> tuple[Opened, OwnPath]:
    """A workload's own path, made from the first inputs."""
    workload = opened(folder, text, method="own")
    path = OwnPath(workload.session)
    path.make(workload.first)
    return workload, path


def unequal(workload: Opened, path: OwnPath) -> list[int]:
    """Requests of the trajectory whose outputs differ from those of the normal path."""
    session = workload.session
    expected = correctness.expect(session, session.input_sets(1))
    actual = correctness.follow(session, path.replay, expected.start)
    found = correctness.compare_paths(session, expected, actual)
    return [each.request for each in found if each.subject == "outputs" and not each.equal]


def test_the_sample_agrees_with_its_normal_path_in_every_request(tmp_path: Path) -> None:
    workload = opened_sample("own_graph_chain", tmp_path, "simulated", method="own")
    path = OwnPath(workload.session)
    path.make(workload.first)
    assert unequal(workload, path) == []


def test_it_is_called_until_it_has_its_graphs_each_time_with_other_memory(tmp_path: Path) -> None:
    workload, _path = made(
        tmp_path,
        """
        SEEN = []
        def build_graphed(shape):
            def graphed(x):
                SEEN.append(x)
                return step(x)
            return graphed
        """,
    )
    seen = workload.session.workload.module.SEEN
    assert len(seen) == WARM_UP_REQUESTS
    assert len({array.pointer for array in seen} | {workload.first[0].pointer}) == WARM_UP_REQUESTS + 1
    assert all((array.to_host() == workload.first[0].to_host()).all() for array in seen)


def test_inputs_that_are_changed_in_place_are_copies(tmp_path: Path) -> None:
    workload = opened(
        tmp_path, SAME + "\n        def step(x):\n            add(x, 1)\n            return x\n"
    )
    before = workload.first[0].to_host()
    OwnPath(workload.session).make(workload.first)
    assert (workload.first[0].to_host() == before).all()


KEEPS_ADDRESS = """
        class Graphed:
            executable = None

            def __call__(self, x):
                if self.executable is None:
                    source, stream = self.source(x), device.create_stream()
                    with device.use_stream(stream):
                        device.begin_capture(stream)
                        self.outputs = step(source)
                        self.executable = device.end_capture(stream).instantiate()
                self.refresh(x)
                self.executable.launch(device.current_stream())
                return self.outputs

        def build_graphed(shape):
            return Graphed()
        """
FIRST_INPUT = """
        Graphed.source = lambda self, x: x
        Graphed.refresh = lambda self, x: None
        """
STATIC_INPUT = """
        def source(self, x):
            self.static = array()
            return self.static

        Graphed.source = source
        Graphed.refresh = lambda self, x: device.copy(self.static, x)
        """


def test_a_path_that_kept_the_address_of_its_first_input_is_wrong(tmp_path: Path) -> None:
    wrong = unequal(*made(tmp_path, KEEPS_ADDRESS + FIRST_INPUT))
    assert len(wrong) >= 4, "one copy may lie where the first input lay"


def test_a_path_that_copies_its_inputs_in_is_right(tmp_path: Path) -> None:
    assert unequal(*made(tmp_path, KEEPS_ADDRESS + STATIC_INPUT)) == []


# --- where its inputs lie ---------------------------------------------------------------------------

BY_ADDRESS = """
        KERNELS = 40

        def step(x):
            device.copy(work, x)
            for k in range(KERNELS):
                add(work, k)
            return work

        class Graphed:
            def __init__(self):
                self.graphs = {}

            def __call__(self, x):
                key = KEY
                if key not in self.graphs:
                    stream = device.create_stream()
                    with device.use_stream(stream):
                        device.begin_capture(stream)
                        outputs = step(x)
                        executable = device.end_capture(stream).instantiate()
                    self.graphs[key] = executable, outputs, x
                executable, outputs, source = self.graphs[key]
                if source is not x and source.pointer != x.pointer:
                    device.copy(source, x)
                executable.launch(device.current_stream())
                return outputs

        GRAPHED = Graphed()

        def build_graphed(shape):
            return GRAPHED
        """


def timed_own(folder: Path, text: str) -> tuple[Opened, dict[str, list[int]], int]:
    """The workload, its latencies by path, and how often a graph was made while they were timed."""
    workload, path = made(folder, text)
    session, graphs = workload.session, workload.session.workload.module.GRAPHED.graphs
    requests: dict[PathName, Request] = {
        "normal": normal_request(session),
        "graph": graph_request(session, path),
    }
    latencies: dict[str, list[int]] = {"normal": [], "graph": []}
    before = len(graphs)
    for block in blocks(session, requests, session.input_sets(1), 5, method="own"):
        latencies[block.path] += block.latencies_ns
    return workload, latencies, len(graphs) - before


def test_a_path_with_a_graph_for_each_address_shows_what_it_costs(tmp_path: Path) -> None:
    _workload, latencies, graphs = timed_own(tmp_path, BY_ADDRESS.replace("KEY", "x.pointer"))
    untimed = CALIBRATION + BLOCKS_PER_PATH
    assert graphs == len(latencies["graph"]) + untimed, "every request makes one"
    assert statistics.median(latencies["graph"]) > statistics.median(latencies["normal"])


def test_a_path_with_one_graph_for_all_addresses_shows_its_gain(tmp_path: Path) -> None:
    _workload, latencies, graphs = timed_own(tmp_path, BY_ADDRESS.replace("KEY", "x.shape"))
    assert graphs == 0
    assert statistics.median(latencies["graph"]) < 0.6 * statistics.median(latencies["normal"])


def test_a_path_with_a_graph_for_each_address_is_refused_by_the_trial(tmp_path: Path) -> None:
    by_address = try_workload(tmp_path, BY_ADDRESS.replace("KEY", "x.pointer"))
    second = by_address.rungs[-1]
    assert (second.number, second.status, second.code) == (2, GateStatus.FAIL, Reason.NO_GAIN)
    assert "the graph is slower" in second.reason


def test_a_path_with_one_graph_for_all_addresses_holds_in_the_trial(tmp_path: Path) -> None:
    tried = try_workload(tmp_path, BY_ADDRESS.replace("KEY", "x.shape"))
    assert [rung.status for rung in tried.rungs] == [GateStatus.PASS] * 2


# --- what fails -----------------------------------------------------------------------------------


def test_what_is_no_callable_breaks_the_contract(tmp_path: Path) -> None:
    workload = opened(tmp_path, "def build_graphed(shape):\n    return 7\n")
    with pytest.raises(WorkloadError, match="build_graphed returned a int, not a callable") as caught:
        OwnPath(workload.session).build()
    assert caught.value.where == workload.place("def build_graphed")


def test_a_workload_without_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="declares no build_graphed"):
        OwnPath(opened(tmp_path).session).build()


@pytest.mark.parametrize(
    "text",
    [
        "def build_graphed(shape):\n    raise ValueError('no engine')\n",
        "def build_graphed(shape):\n    def graphed(x):\n        raise ValueError('no engine')\n"
        "    return graphed\n",
    ],
    ids=["building", "calling"],
)
def test_an_error_of_the_users_code_is_blamed_on_its_line(tmp_path: Path, text: str) -> None:
    workload = opened(tmp_path, text)
    with pytest.raises(ValueError, match="no engine") as caught:
        OwnPath(workload.session).make(workload.first)
    found = blame(caught.value, "default", Phase.TRAJECTORY, workload.path.parent)
    assert found.where == workload.place("raise ValueError")
    assert (found.code, found.message) == (Reason.WORKLOAD, "ValueError: no engine")


def test_an_error_of_a_librarys_callable_names_build_graphed(tmp_path: Path) -> None:
    workload = opened(tmp_path, "def build_graphed(shape):\n    return len\n")
    path = OwnPath(workload.session)
    place = workload.place("def build_graphed")
    with pytest.raises(
        RuntimeError, match=rf"build_graphed\(default\) at {place} raised TypeError: "
    ) as caught:
        path.make(workload.first)
    assert isinstance(caught.value.__cause__, TypeError)


def test_an_exit_of_the_users_code_passes_with_its_line(tmp_path: Path) -> None:
    workload = opened(tmp_path, "def build_graphed(shape):\n    sys.exit(3)\n")
    with pytest.raises(SystemExit) as caught:
        OwnPath(workload.session).build()
    assert blame(caught.value, "default", Phase.CAPTURE, workload.path.parent).where == workload.place(
        "exit(3)"
    )


def test_a_failed_device_call_passes_by_its_name(tmp_path: Path) -> None:
    workload, path = made(tmp_path, SAME)
    workload.session.device.inject(fault(workload))
    with pytest.raises(DeviceError) as caught:
        for _ in range(3):
            path.replay(workload.first)
    assert caught.value.code == "CUDA_ERROR_LAUNCH_FAILED"


def fault(workload: Opened) -> Any:
    return workload.session.workload.module.Fault("launch_failed")


# --- the end --------------------------------------------------------------------------------------


def test_a_path_that_was_given_up_is_freed_and_serves_nothing(tmp_path: Path) -> None:
    workload, path = made(tmp_path, KEEPS_ADDRESS + STATIC_INPUT)
    graphed = weakref.ref(path._path)
    path.invalidate()
    assert graphed() is None
    with pytest.raises(RuntimeError, match=r"build_graphed\(default\) is not there"):
        path.replay(workload.first)
