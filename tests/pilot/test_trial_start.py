"""The first line of a trial: what is tried, what of the request mix is left out, and what was noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cudagraph_gate.errors import WorkloadError
from cudagraph_gate.evidence import create_run
from cudagraph_gate.pilot.jobs import TrialJob
from cudagraph_gate.pilot.ladder import try_shape
from cudagraph_gate.records import TrialStarted

MODEL = """\
SHAPES = {"b1": 1, "b8": 8}

def build(shape):
    raise RuntimeError("far enough")

def inputs(shape, seed):
    return ()

"""


class Answers:
    """Keeps what the worker answers."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def progress(self, text: str, phase: str = "", done: int = 0, total: int = 0) -> None:
        """Not shown."""

    def answer(self, **values: Any) -> None:
        """Kept."""
        self.values |= values


def started(folder: Path, text: str, shapes: str | None) -> tuple[TrialStarted, bool]:
    """The first line of the log, and whether the sixth rung is announced."""
    path = folder / "model.py"
    path.write_text(MODEL + text)
    run = create_run(str(path), "module", "simulated", root=folder / "runs")
    answers = Answers()
    job = TrialJob(folder=str(run.folder), workload=str(path), device="simulated", shapes=shapes, shape=None)
    with pytest.raises(WorkloadError, match="far enough"):
        try_shape(job, answers)
    (first,) = (record for record in run.records() if isinstance(record, TrialStarted))
    return first, answers.values["traffic"]


WEIGHTS = "TRAFFIC = {'b1': 0.9, 'b8': 0.1}\n"


@pytest.mark.parametrize("shapes", [None, "b1"])
def test_a_mix_of_weights_with_a_shape_that_is_not_tried_is_not_replayed(
    tmp_path: Path, shapes: str | None
) -> None:
    first, announced = started(tmp_path, WEIGHTS, shapes)
    assert (first.shapes, first.traffic, announced) == (("b1",), False, False)
    assert first.noticed == (
        "the request mix is not replayed: shapes b8 are not tried; --shapes tries every declared one",
    )


def test_a_mix_whose_shapes_are_all_tried_is_replayed(tmp_path: Path) -> None:
    first, announced = started(tmp_path, WEIGHTS, "")
    assert (first.shapes, first.traffic, announced) == (("b1", "b8"), True, True)
    assert first.noticed == ()


def test_what_had_to_be_put_right_in_the_mix_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "mix.csv").write_text("arrival_s,shape\n1,b1\n0,b8\n")
    text = "TRAFFIC = 'mix.csv'\ndef request(step, shape, seed): ...\ndef version(): return 1\n"
    first, announced = started(tmp_path, text, "")
    assert (first.noticed, announced) == (("mix.csv: its lines are not in order of arrival; sorted",), True)


def test_without_a_mix_nothing_is_noticed(tmp_path: Path) -> None:
    first, announced = started(tmp_path, "", None)
    assert (first.noticed, first.traffic, announced) == ((), False, False)
