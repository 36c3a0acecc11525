"""One exception tree, one map to exit codes, one line for each failure."""

from __future__ import annotations

import re

import pytest

from cudagraph_gate import errors
from cudagraph_gate.errors import (
    CaptureError,
    CgateError,
    DeviceError,
    DeviceMemoryError,
    EvidenceError,
    ExitCode,
    NoDeviceError,
    StickyError,
    UsageError,
    WorkloadError,
    device_error,
)


def descendants(kind: type[CgateError]) -> set[type[CgateError]]:
    return {kind}.union(*(descendants(child) for child in kind.__subclasses__()))


@pytest.mark.parametrize(
    ("kind", "code"),
    [(CgateError, 1), (UsageError, 2), (NoDeviceError, 20), (WorkloadError, 21), (EvidenceError, 22)],
)
def test_each_kind_of_failure_has_its_exit_code(kind: type[CgateError], code: int) -> None:
    assert kind("x").exit_code == code


def test_the_exit_codes_are_those_that_scripts_rely_on() -> None:
    assert {code.name: code.value for code in ExitCode} == {
        "GO": 0,
        "BUG": 1,
        "USAGE": 2,
        "NO_GO": 10,
        "CONDITIONAL": 11,
        "INCONCLUSIVE": 12,
        "NO_DEVICE": 20,
        "WORKLOAD": 21,
        "EVIDENCE": 22,
        "INTERRUPTED": 130,
    }


def test_every_exception_of_the_module_is_in_its_drawing() -> None:
    drawn = set(re.findall(r"\w+Error", errors.__doc__ or ""))
    in_module = {kind.__name__ for kind in descendants(CgateError) if kind.__module__ == errors.__name__}
    assert in_module == drawn


def test_a_failure_reads_as_one_line() -> None:
    error = UsageError("no such\nfile", where="w.py:3", hint="name\n  another")
    assert str(error) == "w.py:3: no such file; name another"
    assert str(UsageError("no such file")) == "no such file"
    assert str(UsageError("no such file", hint="name another")) == "no such file; name another"
    assert (error.what, error.where, error.hint) == ("no such\nfile", "w.py:3", "name\n  another")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", CaptureError),
        ("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", CaptureError),
        ("CUDA_ERROR_STREAM_CAPTURE_UNJOINED", CaptureError),
        ("CUDA_ERROR_CAPTURED_EVENT", CaptureError),
        ("CUDA_ERROR_OUT_OF_MEMORY", DeviceMemoryError),
        ("CUDA_ERROR_ILLEGAL_ADDRESS", StickyError),
        ("CUDA_ERROR_LAUNCH_FAILED", StickyError),
        ("CUDA_ERROR_ASSERT", StickyError),
        ("CUDA_ERROR_INVALID_VALUE", DeviceError),
        ("CUDA_ERROR_NOT_READY", DeviceError),
    ],
)
def test_the_drivers_code_chooses_the_class(code: str, kind: type[DeviceError]) -> None:
    error = device_error(code, "cuGraphLaunch")
    assert type(error) is kind
    assert (error.code, error.call, error.exit_code) == (code, "cuGraphLaunch", ExitCode.BUG)


def test_a_device_error_names_call_code_and_detail() -> None:
    plain = device_error("CUDA_ERROR_NOT_READY", "cuEventQuery")
    assert str(plain) == "cuEventQuery failed with CUDA_ERROR_NOT_READY"
    detailed = device_error("CUDA_ERROR_OUT_OF_MEMORY", "cuMemAlloc", detail="1 GiB asked for")
    assert str(detailed) == "cuMemAlloc failed with CUDA_ERROR_OUT_OF_MEMORY (1 GiB asked for)"
