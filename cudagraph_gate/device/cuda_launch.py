"""Compiling kernels with NVRTC and laying out their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from cudagraph_gate.device.port import Kernel, check_argument
from cudagraph_gate.errors import NoDeviceError, WorkloadError


class KernelParameters:
    """Argument values of a launch with the array of their addresses, which is what the driver takes.

    Keep it alive until the driver call that uses ``address`` has returned; the driver copies the values.
    """

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = [np.ascontiguousarray(value) for value in values]
        self._addresses = np.array([value.ctypes.data for value in self._values], dtype=np.uint64)

    @property
    def address(self) -> int:
        """Address of the pointer array (``void**``)."""
        return int(self._addresses.ctypes.data)


def kernel_parameters(kernel: Kernel, args: Sequence[Any]) -> KernelParameters:
    """Lay out arguments: device arrays by pointer, NumPy scalars by value.

    Raises UsageError for a Python number, whose width on the device would be a guess.
    """
    return KernelParameters([_argument(kernel, index, arg) for index, arg in enumerate(args)])


def _argument(kernel: Kernel, index: int, arg: Any) -> Any:
    check_argument(kernel, index, arg)
    return arg if isinstance(arg, np.generic) else np.uint64(arg.pointer)


@lru_cache(maxsize=256)
def _compiled(name: str, source: str, arch: str) -> Any:
    # To machine code, not PTX: an NVRTC newer than the driver writes PTX that the driver can't read.
    try:
        from cuda.core import Program, ProgramOptions

        code = Program(source, code_type="c++", options=ProgramOptions(arch=f"sm_{arch}")).compile("cubin")
        return code.get_kernel(name)
    except (ImportError, OSError) as error:
        raise NoDeviceError(
            f"NVRTC can't be loaded ({error})", hint="pip install nvidia-cuda-nvrtc"
        ) from error
    except RuntimeError as error:
        if "libnvrtc" in str(error):
            raise NoDeviceError("NVRTC can't be loaded", hint="pip install nvidia-cuda-nvrtc") from error
        raise WorkloadError(f"kernel {name} does not compile: {_first_error(str(error))}") from error
    except Exception as error:
        raise WorkloadError(f"kernel {name} does not compile: {_first_error(str(error))}") from error


def _first_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[0] if lines else "no log")


def compile_kernel(kernel: Kernel, compute_capability: tuple[int, int]) -> Any:
    """The loaded kernel for this GPU, compiled once a process. Raises WorkloadError with NVRTC's message."""
    return _compiled(kernel.name, kernel.source, "".join(map(str, compute_capability)))
