"""A lost device and a request that never ends: what is said of them, and of what should not have survived."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from lost_scenes import COUNTED, Forgetful, Listening, run_parts, scene_of
from pilot_workloads import OF_ITS_OWN, write_workload
from scenes import seen

from cudagraph_gate.errors import CaptureError
from cudagraph_gate.evidence import Run
from cudagraph_gate.graphs import GraphCache, GraphedStep, GraphKey
from cudagraph_gate.model import GateStatus, Reason
from cudagraph_gate.pilot.scenarios import device_loss, kernels
from cudagraph_gate.pilot.scenarios.counting import CountedCapture
from cudagraph_gate.pilot.scenarios.device_loss import CONTEXT_BYTES, Application
from cudagraph_gate.pilot.scenarios.handing_over import HandedOver, hand_over, handed_over, standing
from cudagraph_gate.pilot.scenarios.scene import Outcome, Scene
from cudagraph_gate.records import Proof, Record, ScenarioEnded, WorkerEnd, scenario_stage

FAULT = "CUDA_ERROR_ILLEGAL_ADDRESS"
UNSEEDED = """
def build(shape):
    work, weights = array(), device.array(np.random.default_rng().random(N, dtype=np.float32))

    def step(x):
        device.copy(work, x)
        add(work, weights)
        return work

    return step
"""


def said(outcome: Outcome | None) -> tuple[GateStatus, Reason | None, str]:
    """Status, code and sentence."""
    assert outcome is not None
    return outcome.status, outcome.code, outcome.seen


def ended(records: Sequence[Record]) -> list[ScenarioEnded]:
    """What each part said."""
    return [record for record in records if isinstance(record, ScenarioEnded)]


# --- the lost process -----------------------------------------------------------------------------


def test_a_lost_device_stops_everything_by_name_and_proves_nothing(tmp_path: Path) -> None:
    found = seen(tmp_path, "device-fault")
    assert (found.ended.status, found.ended.seen) == (
        GateStatus.PASS,
        f"{FAULT} from every later call (synchronise, allocate, fill, copy, launch, new stream) and from "
        f"the step ({FAULT}); the graphed step has fallen back, neither it nor the cache serves, and no old "
        "graph is launched again",
    )
    assert found.proofs == {}


def test_a_graph_that_is_wrong_before_the_fault_is_found(tmp_path: Path) -> None:
    found = seen(tmp_path, "device-fault", COUNTED)
    assert (found.ended.status, found.ended.code) == (GateStatus.FAIL, Reason.WRONG_OUTPUT)
    assert found.ended.seen.startswith("before the fault the graph is wrong: request ")


def test_a_write_that_goes_unnoticed_shows_nothing(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, "device-fault", device=Forgetful("cgate_write_nowhere"))
    assert said(device_loss.device_fault(scene)) == (
        GateStatus.UNKNOWN,
        Reason.UNMEASURABLE,
        "a write to an illegal address went unnoticed",
    )


def test_a_device_that_still_answers_is_found(tmp_path: Path) -> None:
    application = Application.of(scene_of(tmp_path, "device-fault"))
    assert said(application.complaint(FAULT)) == (
        GateStatus.FAIL,
        Reason.CRASH,
        f"a replay is answered although the device is lost by {FAULT}",
    )


class Stubborn(GraphedStep):
    """Is not given up by a failure."""

    def invalidate(self) -> None:
        """Not done."""


class Relaunching(GraphedStep):
    """Falls back, and launches its old executable all the same."""

    def __call__(self, *inputs: Any) -> Any:
        """One launch of what was kept."""
        self.kept.launch()

    def instantiate(self) -> None:
        """Keep it."""
        super().instantiate()
        self.kept = self._live()


def application_with(scene: Scene, kind: type[GraphedStep]) -> Application:
    """With a graphed step of this kind, on a device that is lost by now."""
    session, counted = scene.session, CountedCapture(scene.session)
    graphed = kind(session.adapter, session.step, scene.example, source=counted).prepare()
    key = GraphKey(model_version="1", shape=(), dtype=(), device="")
    made = Application(scene, graphed, counted, GraphCache(capacity_entries=1), key)
    made.request(scene.input_sets[0])
    kernels.write_nowhere(session.device, session.adapter.current_stream())
    return made


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Stubborn, f"after {FAULT} the graphed step is ready"),
        (Relaunching, f"after {FAULT} the old executable was launched again"),
    ],
)
def test_a_graphed_step_that_does_not_give_up_is_found(
    tmp_path: Path, kind: type[GraphedStep], sentence: str
) -> None:
    application = application_with(scene_of(tmp_path, "device-fault"), kind)
    assert said(application.complaint(FAULT)) == (GateStatus.FAIL, Reason.CRASH, sentence)


def test_nothing_is_said_of_one_that_gives_up(tmp_path: Path) -> None:
    application = application_with(scene_of(tmp_path, "device-fault"), GraphedStep)
    assert application.complaint(FAULT) is None


# --- the process that replaces it -----------------------------------------------------------------


def test_the_new_process_has_a_right_graph_and_the_same_outputs(tmp_path: Path) -> None:
    path = write_workload(tmp_path, OF_ITS_OWN)
    run, ends = run_parts(path, tmp_path, "device-fault", "simulated", limit_s=60)
    assert [end.outcome for end in ends] == ["finished", "finished"]
    _lost, new = ended(run.records())
    assert (new.part, new.status) == (1, GateStatus.PASS)
    assert new.seen == (
        "the process was lost; the new process has the device and a right graph, its outputs are those of "
        "the lost one, bit by bit"
    )
    proofs = [record for record in run.records() if isinstance(record, Proof)]
    assert {proof.part for proof in proofs} == {1}
    assert {proof.status for proof in proofs} == {GateStatus.PASS}


def test_weights_without_a_seed_are_compared_within_the_process(tmp_path: Path) -> None:
    hand_over(scene_of(tmp_path, "device-fault", UNSEEDED))
    new = scene_of(tmp_path, "device-fault", UNSEEDED, part=1)
    hand_over_file(tmp_path, new)
    found = device_loss.device_fault(new)
    assert found.status is GateStatus.PASS
    assert found.seen.endswith("so the graph was compared within this process alone")


def hand_over_file(folder: Path, new: Scene) -> None:
    """What the first run of the folder was left, in the new scene's run."""
    name = f"scenario-{new.job.scenario}.json"
    (left,) = folder.glob(f"runs/*/{name}")
    left.rename(Path(new.job.folder) / name)


def test_without_what_the_lost_process_left_nothing_is_shown(tmp_path: Path) -> None:
    found = seen(tmp_path, "device-fault", part=1)
    assert (found.ended.status, found.ended.code) == (GateStatus.UNKNOWN, Reason.NOT_TRIED)
    assert found.ended.seen == "what the lost process left is not in the run folder"


@pytest.mark.parametrize(
    ("more", "status"), [(CONTEXT_BYTES, GateStatus.PASS), (CONTEXT_BYTES + 256, GateStatus.UNKNOWN)]
)
def test_memory_that_the_lost_process_still_holds_is_not_passed_over(
    tmp_path: Path, more: int, status: GateStatus
) -> None:
    scene = scene_of(tmp_path, "device-fault", part=1)
    hand_over(scene)
    kept = scene.session.device.empty((more,), "u1")
    found = device_loss.replaced(scene, "lost", freed_within_s=0)
    assert found.status is status
    assert found.code is (Reason.MEMORY if status is GateStatus.UNKNOWN else None)
    del kept


def test_a_new_process_whose_graph_is_wrong_is_found(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, "device-fault", COUNTED, part=1)
    hand_over(scene)
    status, code, sentence = said(device_loss.device_fault(scene))
    assert (status, code) == (GateStatus.FAIL, Reason.WRONG_OUTPUT)
    assert sentence.startswith("the process was lost; the new process's graph is wrong: request ")


def test_what_is_handed_over_depends_on_the_outputs(tmp_path: Path) -> None:
    def stood(number: int, text: str) -> HandedOver:
        folder = tmp_path / str(number)
        folder.mkdir()
        return standing(scene_of(folder, "device-fault", text))

    same, again = (stood(number, OF_ITS_OWN) for number in range(2))
    assert same == again
    assert stood(2, UNSEEDED).outputs != same.outputs


# --- the request that never ends ------------------------------------------------------------------


def test_the_watchdog_ends_a_hang_and_the_new_process_says_where_it_was(tmp_path: Path) -> None:
    path = write_workload(tmp_path, OF_ITS_OWN)
    run, ends = run_parts(path, tmp_path, "hang", "simulated", limit_s=4)
    assert [end.outcome for end in ends] == ["timed_out", "finished"]
    assert ends[0].signal == "SIGABRT"
    (new,) = ended(run.records())
    assert (new.part, new.status) == (1, GateStatus.PASS)
    place = (
        r"ended by SIGABRT in kernels\.py:\d+ \(_never_return\); the new process has the device and a right"
    )
    assert re.match(place, new.seen)


def test_a_kernel_that_ends_after_all_shows_nothing(tmp_path: Path) -> None:
    sink = Listening()
    scene = scene_of(tmp_path, "hang", device=Forgetful("cgate_endless"), sink=sink)
    assert said(device_loss.hang(scene)) == (
        GateStatus.UNKNOWN,
        Reason.UNMEASURABLE,
        "the endless request came to an end",
    )
    assert sink.limits == [8.0]


def test_a_process_that_hangs_before_its_fault_leaves_nothing(tmp_path: Path) -> None:
    text = "def step(x):\n    device.current_stream().synchronize()\n    return x\n"
    scene = scene_of(tmp_path, "hang", text)
    hand_over(scene)  # of an earlier attack
    with pytest.raises(CaptureError):
        device_loss.hang(scene)
    assert handed_over(scene) is None


def hung(**values: Any) -> WorkerEnd:
    """The end of a worker that hung."""
    named = {"outcome": "timed_out", "exit_code": None, "signal": "SIGABRT", "reason": "no progress for 8 s"}
    return WorkerEnd(stage=scenario_stage("hang"), **named | values)


@pytest.mark.parametrize(
    ("end", "code", "sentence"),
    [
        (None, Reason.NOT_TRIED, "no process that hung came before this one"),
        (hung(outcome="crashed"), Reason.NOT_TRIED, "no process that hung came before this one"),
        (
            hung(),
            Reason.HANG,
            "the watchdog did not find out where it hung: no progress for 8 s",
        ),
        (
            hung(signal="", reason="killed, but not gone after 60 s, last in a.py:1 (f)"),
            Reason.HANG,
            "the process that hung could not be ended: killed, but not gone after 60 s, last in a.py:1 (f)",
        ),
    ],
)
def test_a_hang_that_was_not_ended_and_named_is_not_passed_over(
    tmp_path: Path, end: WorkerEnd | None, code: Reason, sentence: str
) -> None:
    scene = scene_of(tmp_path, "hang", part=1)
    hand_over(scene)
    if end is not None:
        Run(Path(scene.job.folder)).append(end)
    assert said(device_loss.hang(scene)) == (GateStatus.UNKNOWN, code, sentence)
