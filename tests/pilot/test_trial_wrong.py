"""Graphs that would be wrong: each kind is found, and named."""

from __future__ import annotations

from pathlib import Path

import pytest
from pilot_workloads import Tried, try_here, unequal

from cudagraph_gate.errors import WorkloadError
from cudagraph_gate.model import Counts, NotMeasured, Reason
from cudagraph_gate.records import Phase


def finding(tried: Tried) -> tuple[Phase, Reason, str, str]:
    """The only finding: phase, reason, call and place."""
    (found,) = tried.shape.findings
    return found.phase, found.code, found.call, found.where


# --- frozen host state ------------------------------------------------------------------------------


@pytest.mark.parametrize("amount", [1.0, 1e-4], ids=["large", "within-one-percent"])
def test_a_python_counter_is_frozen_into_the_graph(tmp_path: Path, amount: float) -> None:
    tried = try_here(
        tmp_path,
        f"""
        calls = 0
        def step(x):
            global calls
            calls += 1
            device.copy(work, x)
            add(work, {amount} * calls)
            return work
        """,
    )
    (found,) = tried.shape.findings
    assert (found.code, found.phase) == (Reason.FROZEN_HOST_STATE, Phase.TRAJECTORY)
    assert not tried.shape.completed


def test_a_number_that_the_step_returns_is_frozen_too(tmp_path: Path) -> None:
    tried = try_here(
        tmp_path,
        """
        lengths = [0]
        def step(x):
            lengths[0] = lengths[0] % 7 + 1
            device.copy(work, x)
            return work, lengths[0]
        """,
    )
    assert unequal(tried, "normal_repeat") == []
    assert unequal(tried, "outputs") == [1, 2, 3, 4, 5, 6]  # captured at call 33, where it is 5
    assert tried.compared("outputs")[1].max_abs_error == NotMeasured(reason="5 for 6")
    assert tried.compared("outputs")[1].detail == "output 1"


def test_a_host_array_that_the_step_writes_on_in_is_frozen_too(tmp_path: Path) -> None:
    tried = try_here(
        tmp_path,
        """
        lengths = np.zeros(2, np.int64)
        def step(x):
            lengths[0] = lengths[0] % 7 + 1
            device.copy(work, x)
            return work, lengths
        """,
    )
    assert unequal(tried, "normal_repeat") == []
    assert [found.max_abs_error for found in tried.compared("outputs")] == [0, 1, 2, 4, 3, 2, 1]


def test_a_normal_path_that_does_not_repeat_itself_is_no_yardstick(tmp_path: Path) -> None:
    tried = try_here(
        tmp_path,
        """
        chance = np.random.default_rng(1)
        def step(x):
            device.copy(work, x)
            add(work, chance.random())
            return work
        """,
    )
    assert unequal(tried, "normal_repeat") == [0, 1, 2, 3, 4, 5, 6]
    assert tried.shape.findings or unequal(tried, "outputs")


# --- escaped work -----------------------------------------------------------------------------------

SIDE = """
def build(shape):
    global work, side, other
    work, side, other = array(), array(), {stream}
    return step

def step(x):
    add(side, 1, {target}, BUMP)
    device.copy(work, x)
    add(work, {amount})
    return work
"""


@pytest.mark.parametrize(
    "stream", ["device.create_stream()", "device.legacy_stream"], ids=["other-stream", "legacy-stream"]
)
def test_the_node_set_lacks_a_kernel_that_ran_elsewhere(tmp_path: Path, stream: str) -> None:
    tried = try_here(tmp_path, SIDE.format(stream=stream, target="other", amount=1))
    nodes = tried.shape.nodes
    assert nodes is not None
    assert nodes.kernels == {"add": 1}
    assert nodes.normal_kernels == Counts(by_name={"add": 1, "bump": 1})


def test_outputs_of_escaped_work_are_found_by_their_poison(tmp_path: Path) -> None:
    tried = try_here(
        tmp_path,
        """
        def step(x):
            device.copy(work, x, device.legacy_stream)
            return work
        """,
    )
    assert tried.shape.nodes is not None
    assert tried.shape.nodes.nodes == 0
    assert unequal(tried, "outputs") == [0, 1, 2, 3, 4, 5, 6]


# --- not capturable ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("device.synchronize()", "cuCtxSynchronize"),
        ("device.current_stream().synchronize()", "cuStreamSynchronize"),
        ("float(work.to_host()[0])", "cuMemcpyDtoH"),
        ("device.empty((N,), np.float32)", "cuMemAlloc"),
    ],
)
def test_what_is_illegal_in_capture_is_named_with_its_line(tmp_path: Path, line: str, call: str) -> None:
    tried = try_here(
        tmp_path,
        f"""
        def step(x):
            device.copy(work, x)
            {line}  # illegal
            return work
        """,
    )
    assert finding(tried) == (Phase.CAPTURE, Reason.CAPTURE_ILLEGAL, call, tried.place("# illegal"))
    assert tried.shape.probe is not None
    assert tried.shape.probe.intact
    assert tried.error is None


def test_a_fork_that_is_not_joined_is_named(tmp_path: Path) -> None:
    tried = try_here(
        tmp_path,
        """
        def build(shape):
            global work, side, other
            work, side, other = array(), array(), device.create_stream()
            return step

        def step(x):
            device.copy(work, x)
            other.wait(device.current_stream().record())
            add(side, 1, other)
            return work
        """,
    )
    phase, code, call, _where = finding(tried)
    assert (phase, code, call) == (Phase.CAPTURE, Reason.UNJOINED_STREAM, "cuStreamEndCapture")
    assert tried.shape.probe is not None
    assert tried.shape.probe.intact


def test_an_error_of_the_users_own_in_capture_is_a_finding_with_its_line(tmp_path: Path) -> None:
    tried = try_here(
        tmp_path,
        """
        def step(x):
            if device.current_stream().is_capturing:
                sys.exit("not in a capture")
            device.copy(work, x)
            return work
        """,
    )
    phase, code, _call, where = finding(tried)
    assert (phase, code, where) == (Phase.CAPTURE, Reason.CAPTURE_ILLEGAL, tried.place("sys.exit"))
    assert tried.shape.probe is not None
    assert tried.shape.probe.intact


# --- lost devices and memory ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("launches", "phase"), [(6, Phase.WARM_UP), (4 * 32, Phase.FIRST_REPLAY)], ids=["normal", "graph"]
)
@pytest.mark.parametrize("fault", ["illegal_address", "launch_failed"])
def test_a_lost_device_is_a_finding(tmp_path: Path, fault: str, launches: int, phase: Phase) -> None:
    tried = try_here(
        tmp_path,
        f"""
        def build(shape):
            global work
            work = array()
            device.inject(Fault("{fault}", after_launches={launches}))
            return step
        """,
    )
    (found,) = tried.shape.findings
    assert (found.phase, found.code) == (phase, Reason.CRASH)
    assert f"CUDA_ERROR_{fault.upper()}" in found.message
    assert tried.error is None


@pytest.mark.parametrize(
    ("function", "phase"), [("build", Phase.BUILD), ("step", Phase.INSTANTIATE)], ids=["build", "executable"]
)
def test_no_memory_is_a_finding(tmp_path: Path, function: str, phase: Phase) -> None:
    tried = try_here(
        tmp_path,
        f"""
        def build(shape):
            global work
            if "{function}" == "build":
                device.inject(Fault("out_of_memory"))
            work = array()
            return step

        def step(x):
            device.copy(work, x)
            if device.current_stream().is_capturing:
                device.inject(Fault("out_of_memory"))
            return work
        """,
    )
    (found,) = tried.shape.findings
    assert (found.phase, found.code) == (phase, Reason.MEMORY)
    assert "CUDA_ERROR_OUT_OF_MEMORY" in found.message


# --- state and addresses ----------------------------------------------------------------------------


def test_inputs_of_changing_size_are_the_workloads_fault_not_ours(tmp_path: Path) -> None:
    tried = try_here(
        tmp_path,
        """
        def step(x):
            add(x, 1)
            return x

        def inputs(shape, seed):
            return array(1, N + seed % 3)
        """,
    )
    assert isinstance(tried.error, WorkloadError)
    assert "inputs differ between requests" in str(tried.error)


# --- the workload's own check -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ("return False", "check returned a false value"),
        ("assert expected is actual, 'too far'", "check: too far"),
        ("raise AssertionError", "check raised AssertionError"),
    ],
)
def test_the_workloads_check_can_refuse_equal_outputs(tmp_path: Path, body: str, detail: str) -> None:
    tried = try_here(tmp_path, f"def check(expected, actual):\n    {body}\n")
    found = tried.compared("outputs")
    assert unequal(tried, "outputs") == [0, 1, 2, 3, 4, 5, 6]
    assert {(each.exact, each.detail) for each in found} == {(True, detail)}


def test_a_check_that_fails_itself_is_the_workloads_fault(tmp_path: Path) -> None:
    tried = try_here(tmp_path, "def check(expected, actual):\n    return expected.nonsense\n")
    assert isinstance(tried.error, WorkloadError)
    assert "AttributeError" in tried.error.what
    assert tried.error.where == tried.place("nonsense")


def test_a_wrong_graph_is_explained_by_the_kernels_that_it_lacks(tmp_path: Path) -> None:
    tried = try_here(
        tmp_path,
        """
        side = device.create_stream()

        def step(x):
            device.copy(work, x)
            add(work, 1)
            add(work, 1, stream=side, kernel=BUMP)
            return work
        """,
    )
    assert unequal(tried, "outputs")
    nodes = tried.shape.nodes
    assert nodes is not None
    assert isinstance(nodes.normal_kernels, Counts)
    assert nodes.normal_kernels.by_name.keys() - nodes.kernels.keys() == {"bump"}
    assert not tried.shape.completed
