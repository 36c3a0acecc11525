"""Reading a request mix: exact times, shares, and one line for what is wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudagraph_gate.errors import CgateError, UsageError, WorkloadError
from cudagraph_gate.workload import Workload, load_workload
from cudagraph_gate.workload.shapes import Mix, mix_of, read_mix

MODEL = """\
SHAPES = {"b1": (1, 128), "b8": (8, 128)}

def build(shape):
    return lambda x: x

def inputs(shape, seed):
    return seed
"""


@pytest.fixture(autouse=True)
def _import_path_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))  # loading a workload adds its folder


def model(folder: Path, text: str = "") -> Workload:
    path = folder / "model.py"
    path.write_text(MODEL + text)
    return load_workload(path)


def mix_file(folder: Path, lines: str, head: str = "arrival_s,shape") -> Path:
    path = folder / "mix.csv"
    path.write_text(f"{head}\n{lines}")
    return path


def read(folder: Path, lines: str) -> Mix:
    return read_mix(model(folder), mix_file(folder, lines))


def refused(folder: Path, lines: str, kind: type[CgateError] = UsageError) -> str:
    with pytest.raises(kind) as caught:
        read(folder, lines)
    return str(caught.value)


# --- reading --------------------------------------------------------------------------------------


def test_arrivals_are_relative_to_the_first(tmp_path: Path) -> None:
    assert read(tmp_path, "2.5,b8\n2.75,b1\n4,b8\n4,b8\n") == Mix(
        weights={"b8": 0.75, "b1": 0.25},
        shapes=("b8", "b1", "b8", "b8"),
        arrivals_ns=(0, 250_000_000, 1_500_000_000, 1_500_000_000),
    )


def test_times_since_1970_stay_exact_to_the_ns(tmp_path: Path) -> None:
    found = read(tmp_path, "1734200000.000000001,b1\n1734200000.000000124,b1\n")
    assert found.arrivals_ns == (0, 123)


def test_lines_out_of_order_are_sorted_with_a_note(tmp_path: Path) -> None:
    found = read(tmp_path, "0.3,b1\n-0.1,b8\n0.3,b8\n")
    assert found.shapes == ("b8", "b1", "b8")
    assert found.arrivals_ns == (0, 400_000_000, 400_000_000)
    assert found.note == "mix.csv: its lines are not in order of arrival; sorted"


def test_other_columns_blanks_and_empty_lines_do_not_matter(tmp_path: Path) -> None:
    path = mix_file(tmp_path, "u1, b1 , 1e-3\n\nu2,b8, 2E-3\n", head="user,shape,arrival_s")
    found = read_mix(model(tmp_path), path)
    assert (found.shapes, found.arrivals_ns) == (("b1", "b8"), (0, 1_000_000))


def test_one_request_is_a_mix(tmp_path: Path) -> None:
    assert read(tmp_path, "7,b1\n") == Mix(weights={"b1": 1.0}, shapes=("b1",), arrivals_ns=(0,))


@pytest.mark.parametrize(
    "time", ["soon", "nan", "inf", "-Infinity", "1e11", "-1e30", "1e999999999", "0x10", "1,5", "1:30"]
)
def test_what_is_no_time_in_seconds_is_refused_with_its_line(tmp_path: Path, time: str) -> None:
    text = f'0,b1\n"{time}",b1\n'
    hint = "write seconds like 0.25, from any start"
    assert refused(tmp_path, text) == f"mix.csv:3: arrival_s is {time!r}, no time in seconds; {hint}"


def test_a_missing_time_or_shape_is_refused_with_its_line(tmp_path: Path) -> None:
    assert refused(tmp_path, ",b1\n").startswith("mix.csv:2: the line has no arrival_s; ")
    assert refused(tmp_path, "0,b1\n1\n").startswith("mix.csv:3: the line has no shape; ")


def test_a_shape_that_is_not_declared_is_the_workloads_error(tmp_path: Path) -> None:
    line = "mix.csv:2: no shape b9; did you mean b8? known: b1, b8"
    assert refused(tmp_path, "0,b9\n", WorkloadError) == line


def test_a_file_without_requests_or_columns_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, "") == f"{tmp_path}/mix.csv: has no requests; add lines of arrival_s,shape"
    path = mix_file(tmp_path, "0,b1\n", head="time,shape")
    with pytest.raises(UsageError, match=r"^mix\.csv:1: has no column arrival_s; "):
        read_mix(model(tmp_path), path)


@given(st.lists(st.tuples(st.integers(-(10**18), 10**18), st.sampled_from(["b1", "b8"])), min_size=1))
@settings(deadline=None, max_examples=50)
def test_any_times_in_ns_come_back(
    tmp_path_factory: pytest.TempPathFactory, requests: list[tuple[int, str]]
) -> None:
    folder = tmp_path_factory.mktemp("mix")
    found = read(folder, "".join(f"{ns}e-9,{shape}\n" for ns, shape in requests))
    ordered = sorted(requests, key=lambda request: request[0])
    assert found.arrivals_ns == tuple(ns - ordered[0][0] for ns, _shape in ordered)
    assert found.shapes == tuple(shape for _ns, shape in ordered)
    assert sum(found.weights.values()) == pytest.approx(1)


# --- which mix ------------------------------------------------------------------------------------


def test_the_file_that_shapes_names_comes_before_the_declared_one(tmp_path: Path) -> None:
    mix_file(tmp_path, "0,b1\n")
    other = tmp_path / "Other.CSV"
    other.write_text("arrival_s,shape\n0,b8\n")
    workload = model(tmp_path, "TRAFFIC = 'mix.csv'\n")
    named, declared = mix_of(workload, str(other)), mix_of(workload, "b8")
    assert named is not None
    assert declared is not None
    assert (named.shapes, declared.shapes) == (("b8",), ("b1",))


@pytest.mark.parametrize("wanted", [None, "", "b1", "b1,b8"])
def test_declared_weights_become_shares_without_arrivals(tmp_path: Path, wanted: str | None) -> None:
    workload = model(tmp_path, "TRAFFIC = {'b8': 1, 'b1': 3}\n")
    assert mix_of(workload, wanted) == Mix(weights={"b8": 0.25, "b1": 0.75})


def test_without_traffic_there_is_no_mix(tmp_path: Path) -> None:
    assert mix_of(model(tmp_path), None) is None
