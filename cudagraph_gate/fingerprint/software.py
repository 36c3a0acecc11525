"""Installed packages and loaded CUDA libraries, found without importing any framework."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from cudagraph_gate.fingerprint.reading import Readings, UnreadableError, read
from cudagraph_gate.model import FieldValue

PACKAGES: Final = (
    "cuda-bindings",
    "cuda-core",
    "cuda-python",
    "cupti-python",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "jax",
    "numba",
    "numba-cuda",
    "numpy",
    "nvidia-cuda-cupti",
    "nvidia-cuda-cupti-cu12",
    "timm",
    "torch",
    "torchvision",
    "transformers",
    "triton",
)
"""Packages that submit GPU work, choose its kernels, or record it."""

PROCESS_FIELDS: Final = frozenset({"cublas", "cuda_runtime", "cudnn", "cupti"})
"""Versions that only a process which loaded the library can tell; another process may not compare them."""

_FIRST_CUPTI_PYTHON: Final = {12: "12.8"}
"""First cupti-python of a CUDA major version, where that is not x.0."""
_NOT_LOADED: Final = "not loaded in this process"

SearchPath = Sequence[str] | None
"""Folders that hold installed packages; None: those of this interpreter."""


def read_packages(path: SearchPath = None) -> Readings:
    """Versions of the installed packages; those that are not installed are left out."""
    found = {name: installed(name, path) for name in PACKAGES}
    return Readings({name: distribution.version for name, distribution in found.items() if distribution})


def installed(name: str, path: SearchPath = None) -> metadata.Distribution | None:
    """An installed package's metadata."""
    folders = sys.path if path is None else list(path)
    return next(iter(metadata.distributions(name=name, path=folders)), None)


# --- libraries that this process has mapped -------------------------------------------------------


def read_libraries(root: Path, modules: Mapping[str, Any]) -> Readings:
    """Versions of CUDA libraries mapped in this process; nothing is loaded for it.

    cuDNN and cuBLAS appear only where they are mapped: most workloads use neither.
    """
    try:
        paths = mapped_libraries(root)
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}"
        return Readings(missing=dict.fromkeys(("cuda_runtime", "cupti"), reason))
    optional = {name: _optional(name, paths) for name in ("cudnn", "cublas") if _named(name, paths)}
    return read(
        {
            "cuda_runtime": lambda: _cuda_runtime(paths, modules),
            "cupti": lambda: library_version("cupti", paths),
            **optional,
        }
    )


def _optional(name: str, paths: Sequence[str]) -> Callable[[], FieldValue]:
    return lambda: library_version(name, paths)


def mapped_libraries(root: Path) -> tuple[str, ...]:
    """Shared libraries in this process's memory map."""
    lines = (root / "proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    paths = {line.split(maxsplit=5)[5] for line in lines if "/" in line}
    return tuple(sorted(path for path in paths if ".so" in path))


def _cuda_runtime(paths: Sequence[str], modules: Mapping[str, Any]) -> str:
    if _named("cudart", paths):
        return library_version("cudart", paths)
    version = getattr(getattr(modules.get("torch"), "version", None), "cuda", None)
    if not version:
        raise UnreadableError(_NOT_LOADED)
    return str(version)


def library_version(name: str, paths: Sequence[str]) -> str:
    """Version of each mapped copy of a library, by its own function, else by its file name.

    Two copies in one process are worth seeing: their versions are joined by a comma.
    """
    copies = _named(name, paths)
    if not copies:
        raise UnreadableError(_NOT_LOADED)
    return ", ".join(sorted({_version_of(name, path) for path in copies}))


def _named(name: str, paths: Sequence[str]) -> list[str]:
    return [path for path in paths if re.fullmatch(rf"lib{name}\.so(\.\d+)*", path.rpartition("/")[2])]


def _version_of(name: str, path: str) -> str:
    try:
        return _ASKING[name](ctypes.CDLL(path))
    except (AttributeError, OSError):  # no such function, or the file was replaced
        version = path.rpartition(".so")[2].strip(".")
        if not version:
            raise UnreadableError(f"{path} does not tell its version") from None
        return version


def _ask_cudart(library: Any) -> str:
    number = ctypes.c_int()
    library.cudaRuntimeGetVersion(ctypes.byref(number))
    return cuda_version(number.value)


def cuda_version(number: int) -> str:
    """CUDA's integer version as text: 13000 is 13.0."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _ask_cupti(library: Any) -> str:
    number = ctypes.c_uint32()
    library.cuptiGetVersion(ctypes.byref(number))
    return str(number.value)


def _ask_cudnn(library: Any) -> str:
    library.cudnnGetVersion.restype = ctypes.c_size_t
    return cudnn_version(library.cudnnGetVersion())


def cudnn_version(number: int) -> str:
    """cuDNN's integer version as text: 91002 is 9.10.2, and 8902, in the older scheme, 8.9.2."""
    major = 10_000 if number >= 90_000 else 1_000
    return f"{number // major}.{number % major // 100}.{number % 100}"


def _ask_cublas(library: Any) -> str:
    parts = []
    for which in range(3):  # libraryPropertyType: major, minor, patch
        number = ctypes.c_int()
        library.cublasGetProperty(which, ctypes.byref(number))
        parts.append(str(number.value))
    return ".".join(parts)


_ASKING: Final[Mapping[str, Callable[[Any], str]]] = {
    "cudart": _ask_cudart,
    "cupti": _ask_cupti,
    "cudnn": _ask_cudnn,
    "cublas": _ask_cublas,
}


# --- frameworks built for another CUDA ------------------------------------------------------------


def framework_mismatch(path: SearchPath = None) -> str | None:
    """One line when a framework is built for another CUDA major version than our CUPTI; else None.

    CUPTI records only the CUDA of its own major version. Read from installed files: nothing is imported.
    """
    ours = installed("cupti-python", path)
    if ours is None:
        return None
    our_major = int(ours.version.partition(".")[0])
    for framework, version in _frameworks(path):
        major = int(version.partition(".")[0])
        if major != our_major:
            needed = _FIRST_CUPTI_PYTHON.get(major, f"{major}.0")
            return (
                f"{framework} is built for CUDA {version}, but cupti-python {ours.version} records CUDA "
                f"{our_major}: install the matching CUPTI with: pip install 'cupti-python~={needed}'"
            )
    return None


def _frameworks(path: SearchPath) -> Iterator[tuple[str, str]]:
    """Installed frameworks with the CUDA version that they are built for."""
    torch = installed("torch", path)
    cuda = _torch_cuda(torch) if torch else None
    if torch and cuda:
        yield f"torch {torch.version}", cuda
    for name in PACKAGES:
        cupy = re.fullmatch(r"cupy-cuda(\d+)x", name)
        if cupy and installed(name, path):
            yield name, cupy[1]


def _torch_cuda(torch: metadata.Distribution) -> str | None:
    """What ``torch/version.py`` says, without running it; None for a CPU build."""
    try:
        text = Path(str(torch.locate_file("torch/version.py"))).read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"^cuda\b[^=\n]*=\s*['\"](\d+\.\d+)", text, flags=re.MULTILINE)
    return found[1] if found else None
