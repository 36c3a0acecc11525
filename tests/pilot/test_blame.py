"""From an exception to a finding: reason, call, the user's line, advice."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from cudagraph_gate.errors import DeviceError, device_error
from cudagraph_gate.model import Reason
from cudagraph_gate.pilot.blame import blame, reason_code
from cudagraph_gate.records import Phase


class OutOfMemoryError(RuntimeError):
    """Named as torch names its own."""


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("STREAM_CAPTURE_UNSUPPORTED", Reason.CAPTURE_ILLEGAL),
        ("STREAM_CAPTURE_INVALIDATED", Reason.CAPTURE_ILLEGAL),
        ("STREAM_CAPTURE_IMPLICIT", Reason.CAPTURE_ILLEGAL),
        ("STREAM_CAPTURE_UNJOINED", Reason.UNJOINED_STREAM),
        ("STREAM_CAPTURE_ISOLATION", Reason.UNJOINED_STREAM),
        ("STREAM_CAPTURE_WRONG_THREAD", Reason.CAPTURE_INTERFERENCE),
        ("OUT_OF_MEMORY", Reason.MEMORY),
        ("ILLEGAL_ADDRESS", Reason.CRASH),
        ("LAUNCH_FAILED", Reason.CRASH),
        ("INVALID_VALUE", Reason.CAPTURE_ILLEGAL),
    ],
)
def test_the_drivers_code_gives_the_reason(code: str, reason: Reason) -> None:
    error = device_error(f"CUDA_ERROR_{code}", "cuSomeCall")
    assert reason_code(error, Phase.CAPTURE) is reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("CUDA error: operation not permitted when stream is capturing", Reason.CAPTURE_ILLEGAL),
        ("CUDA error: capturing stream has unjoined work", Reason.UNJOINED_STREAM),
        ("CUDA error: an illegal memory access was encountered", Reason.CRASH),
        ("CUDA error: misaligned address", Reason.CRASH),
        ("CUDA error: device-side assert triggered", Reason.CRASH),
        ("CUDA error: unspecified launch failure", Reason.CRASH),
        ("CUDA error: out of memory", Reason.MEMORY),
        (
            "CUDA error: operation not permitted when stream is capturing\n"
            "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
            Reason.CAPTURE_ILLEGAL,
        ),
    ],
)
def test_a_frameworks_text_gives_the_reason(text: str, reason: Reason) -> None:
    assert reason_code(RuntimeError(text), Phase.CAPTURE) is reason


def test_torchs_own_memory_error_is_known_by_its_name() -> None:
    assert reason_code(OutOfMemoryError("Tried to allocate 2 GiB"), Phase.WARM_UP) is Reason.MEMORY


@pytest.mark.parametrize(
    ("phase", "reason"),
    [
        (Phase.WARM_UP, Reason.WORKLOAD),
        (Phase.CAPTURE, Reason.CAPTURE_ILLEGAL),
        (Phase.INSTANTIATE, Reason.CAPTURE_ILLEGAL),
        (Phase.TRAJECTORY, Reason.WORKLOAD),
    ],
)
def test_without_code_and_text_the_phase_decides(phase: Phase, reason: Reason) -> None:
    assert reason_code(ValueError("no idea"), phase) is reason


def raised_in(folder: Path, body: str) -> Exception:
    """What a function of a user's file in ``folder`` raises."""
    path = folder / "model.py"
    path.write_text(f"from cudagraph_gate.errors import device_error\ndef step():\n    {body}\n")
    spec = importlib.util.spec_from_file_location("blamed_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(Exception) as caught:
        module.step()
    return caught.value


def test_a_device_error_names_its_call_and_the_users_line(tmp_path: Path) -> None:
    error = raised_in(tmp_path, "raise device_error('CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED', 'cuMemAlloc')")
    found = blame(error, "b1", Phase.CAPTURE, tmp_path)
    assert (found.shape, found.phase, found.code) == ("b1", Phase.CAPTURE, Reason.CAPTURE_ILLEGAL)
    assert (found.call, found.where) == ("cuMemAlloc", "model.py:3")
    assert found.message == ("CaptureError: cuMemAlloc failed with CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED")
    assert found.advice == "move it out of the step, or keep its result on the device"


def test_where_a_framework_hides_the_call_it_is_the_users_line(tmp_path: Path) -> None:
    found = blame(raised_in(tmp_path, "int('size')"), "b1", Phase.CAPTURE, tmp_path)
    assert (found.call, found.where) == ("int('size')", "model.py:3")


def test_an_error_from_elsewhere_has_no_place(tmp_path: Path) -> None:
    found = blame(RuntimeError("\n  first\nsecond"), "b1", Phase.TIMING, tmp_path)
    assert (found.call, found.where, found.message) == ("", "", "RuntimeError: first")
    assert (found.code, found.advice) == (Reason.WORKLOAD, "")


def test_an_error_without_words_is_named_by_its_type(tmp_path: Path) -> None:
    assert blame(ValueError(), "b1", Phase.CAPTURE, tmp_path).message == "ValueError"


def test_a_device_error_from_our_own_call_still_names_the_call(tmp_path: Path) -> None:
    found = blame(DeviceError("CUDA_ERROR_UNKNOWN", "cuGraphLaunch"), "b1", Phase.TRAJECTORY, tmp_path)
    assert (found.call, found.where) == ("cuGraphLaunch", "")
