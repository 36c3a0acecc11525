"""The one exception tree and its map to exit codes.

CgateError
├── UsageError          2   the command line or policy is wrong
├── NoDeviceError      20   no GPU or no CUPTI where one is needed
├── WorkloadError      21   the user's workload failed or breaks the contract
├── EvidenceError      22   a run folder or trace can't be read
└── DeviceError         1   a device call failed; the trial turns it into evidence, so it reaches
    │                       the command line only through a bug of ours
    ├── CaptureError        the call is not permitted in stream capture, or broke the capture
    ├── DeviceMemoryError   the device has no memory left
    └── StickyError         the context is lost; only a new process recovers
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Every exit code of ``cgate``; scripts may rely on them."""

    GO = 0
    BUG = 1
    USAGE = 2
    NO_GO = 10
    CONDITIONAL = 11
    INCONCLUSIVE = 12
    NO_DEVICE = 20
    WORKLOAD = 21
    EVIDENCE = 22
    INTERRUPTED = 130


class CgateError(Exception):
    """A failure that is explained to the user in one line.

    ``what`` went wrong, ``where`` (file, line or folder, if known) and ``hint``: what to do about it.
    """

    exit_code = ExitCode.BUG

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        parts = [f"{self.where}: {self.what}" if self.where else self.what]
        if self.hint:
            parts.append(self.hint)
        return "; ".join(" ".join(part.split()) for part in parts)


class UsageError(CgateError):
    """The command line, a shape list or a policy is wrong."""

    exit_code = ExitCode.USAGE


class NoDeviceError(CgateError):
    """A GPU, its driver or CUPTI is needed and can't be used."""

    exit_code = ExitCode.NO_DEVICE


class WorkloadError(CgateError):
    """The user's workload failed, or does not keep the contract."""

    exit_code = ExitCode.WORKLOAD


class EvidenceError(CgateError):
    """A run folder, an artefact in it or a trace can't be read."""

    exit_code = ExitCode.EVIDENCE


class DeviceError(CgateError):
    """A device call failed: the driver's name for the error and the call that returned it."""

    def __init__(self, code: str, call: str, *, detail: str = "") -> None:
        super().__init__(f"{call} failed with {code}" + (f" ({detail})" if detail else ""))
        self.code = code
        self.call = call
        self.detail = detail


class CaptureError(DeviceError):
    """The call is not permitted while a stream captures, or it broke the capture."""


class DeviceMemoryError(DeviceError):
    """The device has no memory left for this call."""


class StickyError(DeviceError):
    """The context is lost (illegal address and the like): only a new process recovers."""


_CAPTURE_CODES = frozenset(
    f"CUDA_ERROR_{name}"
    for name in (
        "STREAM_CAPTURE_UNSUPPORTED",
        "STREAM_CAPTURE_INVALIDATED",
        "STREAM_CAPTURE_MERGE",
        "STREAM_CAPTURE_UNMATCHED",
        "STREAM_CAPTURE_UNJOINED",
        "STREAM_CAPTURE_ISOLATION",
        "STREAM_CAPTURE_IMPLICIT",
        "STREAM_CAPTURE_WRONG_THREAD",
        "CAPTURED_EVENT",
    )
)
_STICKY_CODES = frozenset(
    f"CUDA_ERROR_{name}"
    for name in (
        "ILLEGAL_ADDRESS",
        "LAUNCH_FAILED",
        "LAUNCH_TIMEOUT",
        "ASSERT",
        "HARDWARE_STACK_ERROR",
        "ILLEGAL_INSTRUCTION",
        "MISALIGNED_ADDRESS",
        "INVALID_ADDRESS_SPACE",
        "INVALID_PC",
        "ECC_UNCORRECTABLE",
    )
)


def device_error(code: str, call: str, *, detail: str = "") -> DeviceError:
    """The exception for a driver error name, such as ``CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED``.

    The one place where an error code chooses its class, for the real and the simulated device alike.
    """
    if code in _CAPTURE_CODES:
        return CaptureError(code, call, detail=detail)
    if code in _STICKY_CODES:
        return StickyError(code, call, detail=detail)
    if code == "CUDA_ERROR_OUT_OF_MEMORY":
        return DeviceMemoryError(code, call, detail=detail)
    return DeviceError(code, call, detail=detail)
