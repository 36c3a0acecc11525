"""Loading workload files, choosing shapes, calling user code: each failure is one exact line."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from cudagraph_gate.errors import ExitCode, WorkloadError
from cudagraph_gate.workload import Workload, is_module_workload, load_workload

GOOD = """\
def build(shape):
    def step(x, scale):
        return x * scale
    return step

def inputs(shape, seed):
    return seed, 2
"""


@pytest.fixture(autouse=True)
def _import_path_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))  # loading a workload adds its folder


def write(folder: Path, text: str, name: str = "mlp.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


def load(folder: Path, text: str = "") -> Workload:
    return load_workload(write(folder, GOOD + textwrap.dedent(text)))


def refused(folder: Path, text: str) -> str:
    """The one line with which a workload file is refused."""
    with pytest.raises(WorkloadError) as caught:
        load_workload(write(folder, text))
    assert caught.value.exit_code == ExitCode.WORKLOAD == 21
    assert caught.value.hint
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- loading --------------------------------------------------------------------------------------


def test_two_functions_are_enough(tmp_path: Path) -> None:
    workload = load(tmp_path)
    assert (workload.name, workload.path, workload.folder) == ("mlp", tmp_path / "mlp.py", tmp_path)
    assert workload.shapes == {"default": None}
    assert workload.build(None)(3, 2) == 6
    assert workload.inputs(None, 7) == (7, 2)
    optional = ("traffic", "updatable", "request", "check", "state", "between", "version", "teardown")
    assert [getattr(workload, part) for part in optional] == [None] * 8


def test_hash_is_of_the_files_bytes(tmp_path: Path) -> None:
    path = tmp_path / "w.py"
    path.write_bytes(b"def build(s): ...\ndef inputs(s, seed): ...\n")
    assert load_workload(path).sha256 == "6f2b65697ecf0f637cc4e7eeae6b293a5255d6d6ef89abedb0ca5c5296a0ac61"


def test_module_sees_its_own_file_and_is_not_main(tmp_path: Path) -> None:
    module = load(tmp_path, "SEEN = (__file__, __name__)\n").module
    assert module.SEEN[0] == str(tmp_path / "mlp.py")
    assert module.SEEN[1].startswith("cgate_workload_mlp_")
    assert sys.modules[module.SEEN[1]] is module


def test_files_of_one_name_are_two_modules(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert load(tmp_path / "a").module.__name__ != load(tmp_path / "b").module.__name__


def test_an_edited_file_is_read_again(tmp_path: Path) -> None:
    assert load(tmp_path, "MARK = 1\n").module.MARK == 1
    assert load(tmp_path, "MARK = 2\n").module.MARK == 2


def test_it_can_import_its_neighbours_and_define_dataclasses(tmp_path: Path) -> None:
    write(tmp_path, "WIDTH = 64\n", "neighbour_of_mlp.py")
    text = """
        from __future__ import annotations
        from dataclasses import dataclass
        from neighbour_of_mlp import WIDTH
        @dataclass
        class Config:
            width: int = WIDTH
        def build(shape): return lambda: Config().width
        def inputs(shape, seed): return ()
    """
    assert load_workload(write(tmp_path, text)).build(None)() == 64


def test_this_modules_future_imports_do_not_leak_into_the_workload(tmp_path: Path) -> None:
    workload = load(tmp_path, "def version() -> int: return 1\n")
    assert workload.version is not None
    assert workload.version.__annotations__ == {"return": int}


def test_every_optional_part_is_found(tmp_path: Path) -> None:
    text = """
        SHAPES = {"b1": (1, 128), "b8": (8, 128)}
        TRAFFIC = {"b1": 3, "b8": 0.5}
        UPDATABLE = ["x"]
        def request(step, shape, seed): ...
        def build_graphed(shape): ...
        def build_explicit(shape, graph): ...
        def check(expected, actual): ...
        def state(): ...
        def between(i): ...
        def version(): ...
        def teardown(): ...
    """
    workload = load(tmp_path, text)
    assert workload.shapes == {"b1": (1, 128), "b8": (8, 128)}
    assert workload.traffic == {"b1": 3.0, "b8": 0.5}
    assert workload.updatable == ("x",)
    functions = (
        "request",
        "build_graphed",
        "build_explicit",
        "check",
        "state",
        "between",
        "version",
        "teardown",
    )
    assert [getattr(workload, name).__name__ for name in functions] == list(functions)


@pytest.mark.parametrize(
    "declaration", ["def build(*shapes)", "def build(shape, *, dtype='fp16')", "def build(s, t=1)"]
)
def test_a_function_that_can_be_called_as_agreed_is_accepted(tmp_path: Path, declaration: str) -> None:
    load_workload(write(tmp_path, f"{declaration}: ...\ndef inputs(shape, seed=0): ...\n"))


# --- files that are no workload -------------------------------------------------------------------


def test_missing_file_names_the_nearest(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    with pytest.raises(WorkloadError) as caught:
        load_workload(tmp_path / "mpl.py")
    assert str(caught.value) == f"{tmp_path}/mpl.py: no such file; did you mean {tmp_path}/mlp.py?"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("zzz.py", "zzz.py: no such file; name a Python file"),
        ("nowhere/zzz.py", "nowhere/zzz.py: no such file; there is no folder {folder}/nowhere"),
        ("sub", "sub: is a folder; name the workload file in it"),
        ("notes.txt", "notes.txt: is not a .py file; name a Python file"),
    ],
)
def test_what_is_no_python_file_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path, "hello", "notes.txt")
    with pytest.raises(WorkloadError) as caught:
        load_workload(tmp_path / name)
    assert str(caught.value) == f"{tmp_path}/{text.format(folder=tmp_path)}"


def test_syntax_error_has_its_line(tmp_path: Path) -> None:
    line = refused(tmp_path, "x = 1\ndef build(shape:\n    pass\n")
    assert line == "mlp.py:2: SyntaxError: '(' was never closed; correct the syntax"


def test_null_bytes_are_explained(tmp_path: Path) -> None:
    assert "null bytes" in refused(tmp_path, "x = 1\0\n")


# --- imports that fail ----------------------------------------------------------------------------


def test_missing_package_is_named_with_its_import(tmp_path: Path) -> None:
    assert refused(tmp_path, "import os\nimport no_such_pkg.part\n") == (
        "mlp.py:2: importing it raised ModuleNotFoundError: No module named 'no_such_pkg'; "
        "install no_such_pkg here, or put it beside mlp.py"
    )


def test_failing_import_keeps_its_first_line_only(tmp_path: Path) -> None:
    assert refused(tmp_path, "\nraise ImportError('libfoo.so.1: not found\\nmore')\n") == (
        "mlp.py:2: importing it raised ImportError: libfoo.so.1: not found; run it with python to see more"
    )


def test_failure_in_a_neighbour_is_placed_there(tmp_path: Path) -> None:
    write(tmp_path, "\n\nWIDTH = 1 // 0\n", "neighbour_that_fails.py")
    line = refused(tmp_path, "import neighbour_that_fails\n")
    assert line.startswith("neighbour_that_fails.py:3: importing it raised ZeroDivisionError: ")


def test_syntax_error_in_a_neighbour_is_placed_there(tmp_path: Path) -> None:
    write(tmp_path, "x = 1\nx = = 2\n", "neighbour_misspelt.py")
    line = refused(tmp_path, "import neighbour_misspelt\n")
    assert line.startswith("neighbour_misspelt.py:2: importing it raised SyntaxError: invalid syntax; ")


def test_exit_while_importing_is_a_failure_of_the_workload(tmp_path: Path) -> None:
    line = refused(tmp_path, "import sys\nsys.exit(2)\n")
    assert line == "mlp.py:2: importing it called sys.exit(2); raise an exception instead"


def test_interrupt_while_importing_is_an_interrupt(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        load_workload(write(tmp_path, "raise KeyboardInterrupt\n"))


def test_failed_import_leaves_no_module_behind(tmp_path: Path) -> None:
    before = {name for name in sys.modules if name.startswith("cgate_workload_fails")}
    with pytest.raises(WorkloadError):
        load_workload(write(tmp_path, "raise ValueError\n", "fails.py"))
    assert {name for name in sys.modules if name.startswith("cgate_workload_fails")} == before


# --- the contract ---------------------------------------------------------------------------------

INPUTS = "def inputs(shape, seed): ...\n"
BOTH = "def build(shape): ...\n" + INPUTS


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "def build(s): ...\n",
            "mlp.py:1: build without inputs; define inputs(shape, seed): fresh inputs of one request",
        ),
        (INPUTS, "mlp.py:1: inputs without build; define build(shape), which returns step(*inputs)"),
        (
            "x = 1\n",
            "mlp.py: neither build(shape) nor inputs(shape, seed); "
            "define both, or profile it as a script: cgate profile mlp.py",
        ),
        ("\nbuild = 3\n" + INPUTS, "mlp.py:2: build is of type int, not a function; define build(shape)"),
        (
            BOTH + 'version = "1.2"\n',
            "mlp.py:3: version is of type str, not a function; define version() or rename it",
        ),
        (
            "def build(): ...\n" + INPUTS,
            "mlp.py:1: build() can't be called as build(shape); give build 1 parameter",
        ),
        (
            "def build(shape): ...\ndef inputs(shape: int): ...\n",
            "mlp.py:2: inputs(shape) can't be called as inputs(shape, seed); give inputs 2 parameters",
        ),
        (
            BOTH + "def state(model): ...\n",
            "mlp.py:3: state(model) can't be called as state(); give state no parameters",
        ),
        (
            BOTH + "def request(step, shape): ...\n",
            "mlp.py:3: request(step, shape) can't be called as request(step, shape, seed); "
            "give request 3 parameters",
        ),
    ],
)
def test_broken_function_contract(tmp_path: Path, text: str, line: str) -> None:
    assert refused(tmp_path, text) == line


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("between", "def between(): ..."),
        ("check", "def check(expected): ..."),
        ("build_graphed", "def build_graphed(a, b): ..."),
        ("build_explicit", "def build_explicit(shape): ..."),
        ("version", "def version(x): ..."),
        ("teardown", "def teardown(x): ..."),
    ],
)
def test_wrong_number_of_parameters_of_an_optional_part(tmp_path: Path, name: str, wrong: str) -> None:
    assert refused(tmp_path, BOTH + wrong).startswith(f"mlp.py:3: {name}(")


def test_line_of_a_decorated_or_conditional_function(tmp_path: Path) -> None:
    text = """\
        def same(f): return f
        if True:
            @same
            def build(): ...
        try:
            from absent_build import inputs
        except ImportError:
            def inputs(shape, seed): ...
        """
    assert refused(tmp_path, text).startswith("mlp.py:4: build()")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "SHAPES = [(1, 128)]",
            'SHAPES is of type list, not a dict; write it like SHAPES = {"b1": (1, 128)}',
        ),
        ("SHAPES = {}", 'SHAPES is empty; write it like SHAPES = {"b1": (1, 128)}'),
        (
            "SHAPES = {1: 2}",
            'SHAPES has the key 1, which is not a str; write it like SHAPES = {"b1": (1, 128)}',
        ),
        ("SHAPES = {'a,b': 2}", "SHAPES has the name 'a,b'; use names without , and ="),
        ("UPDATABLE = 'x'", 'UPDATABLE is of type str, not a list of names; write it like UPDATABLE = ["x"]'),
        ("UPDATABLE = [0]", "UPDATABLE has 0, which is no input's name; name parameters of step"),
        ("TRAFFIC = {'defualt': 1}", "TRAFFIC has no shape 'defualt'; did you mean default? known: default"),
        ("TRAFFIC = {'default': 0}", "TRAFFIC gives default the weight 0; use numbers above 0"),
        ("TRAFFIC = {'default': True}", "TRAFFIC gives default the weight True; use numbers above 0"),
        ("TRAFFIC = {'default': float('nan')}", "TRAFFIC gives default the weight nan; use numbers above 0"),
        (
            "TRAFFIC = {}",
            'TRAFFIC is empty; write it like TRAFFIC = {"b1": 0.9, "b8": 0.1}, or name a CSV file',
        ),
        (
            "TRAFFIC = [1]",
            "TRAFFIC is of type list, not a dict; "
            'write it like TRAFFIC = {"b1": 0.9, "b8": 0.1}, or name a CSV file',
        ),
    ],
)
def test_broken_declaration(tmp_path: Path, text: str, line: str) -> None:
    assert refused(tmp_path, BOTH + text) == f"mlp.py:3: {line}"


def test_traffic_may_be_a_csv_beside_the_workload(tmp_path: Path) -> None:
    write(tmp_path, "arrival_s,shape\n0,default\n", "mix.csv")
    assert load(tmp_path, "TRAFFIC = 'mix.csv'\n").traffic == tmp_path / "mix.csv"


def test_traffic_that_names_no_csv_is_refused(tmp_path: Path) -> None:
    line = refused(tmp_path, BOTH + "TRAFFIC = 'mix.csv'")
    assert line == f"mlp.py:3: TRAFFIC names mix.csv: no such CSV file; looked in {tmp_path}"


# --- script or module -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "is_module"),
    [
        ("def build(shape): ...", True),
        ("build = make()", True),
        ("build, other = make()", True),
        ("from elsewhere import build", True),
        ("from elsewhere import make as build", True),
        ("try:\n    import x\nexcept ImportError:\n    def build(s): ...", True),
        ("def main():\n    def build(shape): ...", False),
        ("class A:\n    build = 1", False),
        ("build()", False),
        ("table[build] = 1", False),
        ("", False),
    ],
)
def test_a_module_workload_defines_build_at_top_level(tmp_path: Path, text: str, is_module: bool) -> None:
    assert is_module_workload(write(tmp_path, text)) is is_module


def test_asking_for_the_mode_runs_nothing(tmp_path: Path) -> None:
    assert is_module_workload(write(tmp_path, "raise RuntimeError\ndef build(s): ...")) is True


def test_a_script_that_can_not_be_parsed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"^mlp\.py:1: SyntaxError: "):
        is_module_workload(write(tmp_path, "def ("))
