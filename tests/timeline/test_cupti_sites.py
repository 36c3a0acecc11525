"""Call sites: the innermost line of the user's code, and never a failure."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from cudagraph_gate.timeline.cupti_sites import CallSites, has_site


def compiled(file: str, source: str) -> Callable[[Callable[[], object]], object]:
    """The function ``run`` of ``source``, as if it stood in ``file``."""
    names: dict[str, Callable[[Callable[[], object]], object]] = {}
    exec(compile(source, file, "exec"), names)
    return names["run"]


def current() -> FrameType | None:
    return sys._getframe(1)


USER = compiled("/home/somebody/secret/train.py", "\ndef run(inner):\n    return inner()\n")
LIBRARY = compiled("/venv/lib/python3/site-packages/torch/cuda.py", "def run(inner):\n    return inner()\n")
STANDARD = compiled(str(sys.modules["threading"].__file__), "def run(f): return f()")
TYPED_IN = compiled("<string>", "def run(inner): return inner()")


def site(*path: Callable[[Callable[[], object]], object]) -> str:
    """The site of a call made through ``path``, the outermost first, without this test's own frames."""
    sites, found = CallSites(), []

    def innermost() -> None:
        frame = current()
        assert frame is not None
        found.append(sites.of(frame.f_back))

    call: Callable[[], object] = innermost
    for function in reversed(path):
        call = _through(function, call)
    call()
    return found[0]


def _through(function: Callable[..., object], inner: Callable[[], object]) -> Callable[[], object]:
    return lambda: function(inner)


def test_the_site_is_file_line_and_function_without_folders() -> None:
    assert site(USER) == "train.py:3 run"


@pytest.mark.parametrize("foreign", [LIBRARY, STANDARD, TYPED_IN])
def test_frames_of_libraries_are_not_the_site(foreign: Callable[..., object]) -> None:
    frame = foreign(current)
    assert isinstance(frame, FrameType)
    assert not CallSites().of(frame).startswith(Path(frame.f_code.co_filename).name)


def test_no_frame_has_no_site() -> None:
    assert CallSites().of(None) == ""


def test_a_noted_call_has_the_line_that_made_it() -> None:
    sites = CallSites()
    sites.note(7)
    (noted,) = sites.by_correlation.items()
    assert noted[0] == 7
    assert noted[1].endswith(" test_a_noted_call_has_the_line_that_made_it")
    assert noted[1].startswith(f"{Path(__file__).name}:")


def test_noting_never_raises() -> None:
    sites = CallSites()
    sites.of = None  # type: ignore[assignment, method-assign]
    sites.note(7)
    assert sites.by_correlation == {}


@pytest.mark.parametrize(
    ("function", "noted"),
    [
        ("cudaStreamSynchronize", True),
        ("cuCtxSynchronize", True),
        ("cudaMemcpy", True),
        ("cuMemcpyDtoH", True),
        ("cudaEventSynchronize", False),
        ("cuEventSynchronize", False),
        ("cudaMemcpyAsync", False),
        ("cuMemcpyBatchAsync", False),
        ("cudaLaunchKernel", False),
        ("callback 12", False),
    ],
)
def test_only_blocking_calls_are_looked_at(function: str, noted: bool) -> None:
    assert has_site(function) is noted
