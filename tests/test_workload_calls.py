"""Choosing shapes, calling user code, and checking what it gives back."""

from __future__ import annotations

import sys
import textwrap
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cudagraph_gate.errors import (
    CaptureError,
    CgateError,
    NoDeviceError,
    UsageError,
    WorkloadError,
    device_error,
)
from cudagraph_gate.workload import (
    Workload,
    call_user,
    check_inputs,
    check_outputs,
    flatten,
    load_workload,
    name_inputs,
    select_shapes,
    user_frame,
)

CONTRACT = "def build(shape): ...\ndef inputs(shape, seed): ...\n"


@pytest.fixture(autouse=True)
def _import_path_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))  # loading a workload adds its folder


def load(folder: Path, text: str = "") -> Workload:
    path = folder / "mlp.py"
    path.write_text(CONTRACT + textwrap.dedent(text))
    return load_workload(path)


@pytest.fixture
def shaped(tmp_path: Path) -> Workload:
    return load(tmp_path, 'SHAPES = {"b1": (1, 128), "b8": (8, 128)}\n')


# --- shapes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        (None, {"b1": (1, 128), "b8": (8, 128)}),
        ("b8", {"b8": (8, 128)}),
        ("b8, b1", {"b8": (8, 128), "b1": (1, 128)}),
        ("b4=4x128", {"b4": (4, 128)}),
        ("n=64", {"n": 64}),
        ("b1,b4=4x2x128", {"b1": (1, 128), "b4": (4, 2, 128)}),
        ("b1=1x128", {"b1": (1, 128)}),
    ],
)
def test_shapes_are_chosen(shaped: Workload, wanted: str | None, chosen: dict[str, Any]) -> None:
    found = select_shapes(shaped, wanted)
    assert list(found.items()) == list(chosen.items())


def test_without_declared_shapes_there_is_one(tmp_path: Path) -> None:
    assert select_shapes(load(tmp_path), None) == {"default": None}


def test_unknown_shape_names_the_nearest_and_all(shaped: Workload) -> None:
    with pytest.raises(WorkloadError) as caught:
        select_shapes(shaped, "b1,b88")
    assert str(caught.value) == "mlp.py: no shape b88; did you mean b8? known: b1, b8"
    assert caught.value.exit_code == 21


HOW = "write --shapes like b1,b8 or b1=1x128,b8=8x128 or traffic.csv"


@pytest.mark.parametrize(
    ("wanted", "line"),
    [
        ("", f"--shapes has the item '', which has no name; {HOW}"),
        ("b1,,b8", f"--shapes has the item '', which has no name; {HOW}"),
        ("=1x2", f"--shapes has the item '=1x2', which has no name; {HOW}"),
        ("b4=4x", f"--shapes has the item 'b4=4x', which is no shape; {HOW}"),
        ("b4=-1", f"--shapes has the item 'b4=-1', which is no shape; {HOW}"),
        ("b4=4×128", f"--shapes has the item 'b4=4×128', which is no shape; {HOW}"),
        ("b1,b1", f"--shapes names b1 twice; {HOW}"),
        ("b1=2x128", "b1 is declared as (1, 128); give the new shape another name"),
    ],
)
def test_malformed_shapes_are_usage_errors(shaped: Workload, wanted: str, line: str) -> None:
    with pytest.raises(UsageError) as caught:
        select_shapes(shaped, wanted)
    assert (str(caught.value), caught.value.exit_code) == (line, 2)


def mix(folder: Path, text: str) -> str:
    path = folder / "traffic.csv"
    path.write_text(text)
    return str(path)


def test_a_request_mix_picks_its_shapes_by_first_arrival(shaped: Workload, tmp_path: Path) -> None:
    wanted = mix(tmp_path, "arrival_s,shape\n0.0,b8\n0.1, b1\n0.2,b8\n")
    assert list(select_shapes(shaped, wanted).items()) == [("b8", (8, 128)), ("b1", (1, 128))]


def test_other_columns_and_a_byte_order_mark_do_not_disturb(shaped: Workload, tmp_path: Path) -> None:
    wanted = mix(tmp_path, "\ufeffarrival_s, user, shape\n0.0,anna,b8\n")
    assert select_shapes(shaped, wanted) == {"b8": (8, 128)}


def test_unknown_shape_in_a_mix_has_its_line(shaped: Workload, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError) as caught:
        select_shapes(shaped, mix(tmp_path, "arrival_s,shape\n0.0,b8\n0.1,c8\n"))
    assert str(caught.value) == "traffic.csv:3: no shape c8; did you mean b8? known: b1, b8"


def test_a_short_line_in_a_mix_has_its_line(shaped: Workload, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^traffic\.csv:2: the line has no shape; "):
        select_shapes(shaped, mix(tmp_path, "arrival_s,shape\n0.0\n"))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("time,shape\n0,b1\n", "traffic.csv:1: has no column arrival_s; start it with arrival_s,shape"),
        ("", "traffic.csv:1: has no column arrival_s and no column shape; start it with arrival_s,shape"),
        ("arrival_s,shape\n", "{folder}/traffic.csv: has no requests; add lines of arrival_s,shape"),
    ],
)
def test_a_mix_that_is_none_is_a_usage_error(shaped: Workload, tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(UsageError) as caught:
        select_shapes(shaped, mix(tmp_path, text))
    assert str(caught.value) == line.format(folder=tmp_path)


def test_a_mix_that_is_not_there_is_a_usage_error(shaped: Workload, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        select_shapes(shaped, f"{tmp_path}/absent.csv")
    assert str(caught.value) == f"{tmp_path}/absent.csv: can't be read (No such file or directory); {HOW}"


# --- calling user code ----------------------------------------------------------------------------


def failure(folder: Path, body: str) -> CgateError:
    """What calling ``state()`` with this body, from line 4 of the file, raises."""
    workload = load(folder, "def state():\n" + textwrap.indent(textwrap.dedent(body), "    "))
    assert workload.state is not None
    with pytest.raises(CgateError) as caught:
        call_user(workload.state, workload=workload, what="state()")
    return caught.value


def test_the_result_of_user_code_comes_back(tmp_path: Path) -> None:
    assert call_user(lambda a, b: a + b, 1, 2, workload=load(tmp_path), what="step") == 3


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("return {}['x']", "mlp.py:4: state() raised KeyError: 'x'"),
        ("x = 1\nraise ValueError('first\\nsecond')", "mlp.py:5: state() raised ValueError: first"),
        ("assert False", "mlp.py:4: state() raised AssertionError"),
        ("import sys; sys.exit(2)", "mlp.py:4: state() called sys.exit(2); raise an exception instead"),
        ("import sys; sys.exit()", "mlp.py:4: state() called sys.exit(); raise an exception instead"),
        ("import json; json.loads('{')", "mlp.py:4: state() raised JSONDecodeError: "),
    ],
)
def test_a_failure_is_one_line_at_the_users_own_frame(tmp_path: Path, body: str, line: str) -> None:
    error = failure(tmp_path, body)
    assert type(error) is WorkloadError
    assert str(error) == line or (line.endswith(": ") and str(error).startswith(line))
    assert error.__cause__ is not None


def test_a_wrong_call_is_placed_by_nothing_but_told(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError) as caught:
        call_user(lambda: None, 1, workload=load(tmp_path), what="step")
    assert str(caught.value).endswith("takes 0 positional arguments but 1 was given")
    assert caught.value.where is None


def test_a_device_error_passes_unchanged(tmp_path: Path) -> None:
    raised = device_error("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "cuMemAlloc")

    def step() -> None:
        raise raised

    with pytest.raises(CaptureError) as caught:
        call_user(step, workload=load(tmp_path), what="step")
    assert caught.value is raised


def test_a_workload_error_keeps_its_words_and_gains_the_place(tmp_path: Path) -> None:
    body = """\
        from cudagraph_gate.errors import WorkloadError
        raise WorkloadError("kernel saxpy does not compile", hint="see line 3")
        """
    assert str(failure(tmp_path, body)) == "mlp.py:5: kernel saxpy does not compile; see line 3"


def test_a_missing_device_stays_what_it_is(tmp_path: Path) -> None:
    def step() -> None:
        raise NoDeviceError("no GPU")

    with pytest.raises(NoDeviceError, match=r"^no GPU$"):
        call_user(step, workload=load(tmp_path), what="step")


def test_an_interrupt_passes(tmp_path: Path) -> None:
    def step() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call_user(step, workload=load(tmp_path), what="step")


def traced(path: Path, text: str) -> Exception:
    """The exception that running ``text`` as the file ``path`` raises."""
    try:
        exec(compile(text, str(path), "exec"), {})
    except Exception as error:  # noqa: BLE001
        return error
    raise AssertionError("it did not raise")


@pytest.mark.parametrize(
    ("file", "where"),
    [
        ("mlp.py", "mlp.py:2"),
        ("layers/attention.py", "layers/attention.py:2"),
        (".venv/lib/python3.12/site-packages/torch/nn.py", None),
        ("../elsewhere.py", None),
    ],
)
def test_only_the_users_own_files_are_a_place(tmp_path: Path, file: str, where: str | None) -> None:
    error = traced(tmp_path / file, "\nraise ValueError")
    assert user_frame(error, tmp_path) == where
    assert user_frame(error.__traceback__, tmp_path) == where


def test_the_innermost_of_the_users_frames_counts(tmp_path: Path) -> None:
    text = "import json\ndef inner():\n    json.loads('{')\ndef outer():\n    inner()\nouter()\n"
    assert user_frame(traced(tmp_path / "w.py", text), tmp_path) == "w.py:3"


def test_nothing_raised_has_no_place(tmp_path: Path) -> None:
    assert user_frame(None, tmp_path) is None


# --- inputs ---------------------------------------------------------------------------------------


class Module:
    """Called like a torch module: its parameters are those of forward."""

    def __call__(self, *args: Any, **kwargs: Any) -> None: ...

    def forward(self, ids: Any, mask: Any = None) -> None: ...


def plain(x: Any, y: Any = None, *, scale: float = 1.0) -> None: ...


def spread(x: Any, *more: Any) -> None: ...


@pytest.mark.parametrize(
    ("step", "inputs", "names"),
    [
        (plain, (1, 2), ("x", "y")),
        (plain, (1,), ("x",)),
        (plain, 7, ("x",)),
        (plain, None, ()),
        (spread, [1, 2, 3], ("x", "input1", "input2")),
        (partial(plain, 0), (2,), ("y",)),
        (Module(), (1, 2), ("ids", "mask")),
        (max, (1, 2), ("input0", "input1")),
    ],
)
def test_inputs_are_named_after_steps_parameters(step: Any, inputs: Any, names: tuple[str, ...]) -> None:
    assert name_inputs(step, inputs) == names


@pytest.mark.parametrize(("given", "checked"), [((1, 2), (1, 2)), ([1], (1,)), (7, (7,)), ((), ())])
def test_inputs_become_a_tuple(tmp_path: Path, given: Any, checked: tuple[Any, ...]) -> None:
    assert check_inputs(load(tmp_path), given, ("x", "y")) == checked


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (None, "mlp.py:2: inputs returned None; return a tuple of step's inputs; () if it takes none"),
        ({"x": 1}, "mlp.py:2: inputs returned a dict; return a tuple in the order of step's parameters"),
    ],
)
def test_inputs_of_the_wrong_kind(tmp_path: Path, given: Any, line: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        check_inputs(load(tmp_path), given, ())
    assert str(caught.value) == line


def test_updatable_must_name_inputs_of_step(tmp_path: Path) -> None:
    workload = load(tmp_path, 'UPDATABLE = ["x", "maks"]\n')
    with pytest.raises(WorkloadError) as caught:
        check_inputs(workload, (1, 2), ("x", "mask"))
    line = "mlp.py:3: UPDATABLE names maks, which is no input of step; did you mean mask? known: x, mask"
    assert str(caught.value) == line
    assert check_inputs(workload, (1, 2), ("x", "maks")) == (1, 2)


# --- outputs --------------------------------------------------------------------------------------


@dataclass
class Cache:
    key: Any
    value: Any


Pair = namedtuple("Pair", ["mean", "deviation"])


@pytest.mark.parametrize(
    ("value", "leaves"),
    [
        (5, (("output", 5),)),
        ((5, 6), (("0", 5), ("1", 6))),
        ([5, None, 6], (("0", 5), ("2", 6))),
        ({"logits": 5, "past": (6, {"k": 7})}, (("logits", 5), ("past.0", 6), ("past.1.k", 7))),
        (OrderedDict(b=1, a=2), (("b", 1), ("a", 2))),
        (Cache(1, (2, 3)), (("key", 1), ("value.0", 2), ("value.1", 3))),
        (Pair(1, 2), (("mean", 1), ("deviation", 2))),
        ({3: "text"}, (("3", "text"),)),
        (None, ()),
        (({}, [None]), ()),
    ],
)
def test_nested_outputs_are_flattened(value: Any, leaves: tuple[tuple[str, Any], ...]) -> None:
    assert flatten(value) == leaves


def test_a_dataclass_itself_is_a_leaf() -> None:
    assert flatten(Cache) == (("output", Cache),)


def test_anything_with_items_is_opened() -> None:
    assert flatten(SimpleNamespace(items=lambda: [("a", 1)])) == (("a", 1),)


def test_outputs_come_back_flat(tmp_path: Path) -> None:
    assert check_outputs(load(tmp_path), plain, (1, 2)) == (("0", 1), ("1", 2))


@pytest.mark.parametrize("outputs", [None, (), {}, (None, [])])
def test_a_step_that_returns_nothing_is_named_with_its_line(tmp_path: Path, outputs: Any) -> None:
    workload = load(tmp_path, "def version():\n    def step(x): ...\n    return step\n")
    assert workload.version is not None
    with pytest.raises(WorkloadError) as caught:
        check_outputs(workload, workload.version(), outputs)
    assert str(caught.value) == "mlp.py:4: step returned nothing; return the output array(s)"


@pytest.mark.parametrize("step", [plain, max, Module(), partial(plain, 1)])
def test_a_foreign_step_is_placed_at_build(tmp_path: Path, step: Any) -> None:
    with pytest.raises(WorkloadError, match=r"^mlp\.py:1: step returned nothing; "):
        check_outputs(load(tmp_path), step, None)


def test_outputs_that_contain_themselves_are_refused() -> None:
    outputs: list[Any] = [1]
    outputs.append({"again": outputs})
    with pytest.raises(WorkloadError, match=r"contain themselves at 1\.again"):
        flatten(outputs)
    assert flatten([[1], [1]]) == (("0.0", 1), ("1.0", 1))


def test_a_call_with_the_wrong_number_of_arguments_is_placed_at_the_function(tmp_path: Path) -> None:
    workload = load(tmp_path, "def state():\n    return {}\n")
    assert workload.state is not None
    with pytest.raises(WorkloadError) as caught:
        call_user(workload.state, 1, workload=workload, what="state()")
    assert str(caught.value).startswith("mlp.py:3: state() raised TypeError: state() takes 0 positional")
