"""The GPU that CUDA sees first, read through NVML; no CUDA context is made."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from cudagraph_gate.fingerprint.reading import Readings, UnreadableError, read
from cudagraph_gate.fingerprint.software import cuda_version
from cudagraph_gate.model import FieldValue

MPS_PIPES: Final = "tmp/nvidia-mps"
"""Where the MPS control daemon keeps its pipes unless CUDA_MPS_PIPE_DIRECTORY says otherwise."""

THROTTLE_REASONS: Final[Mapping[int, str]] = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""NVML's bits for what holds the clocks below their maximum."""

GPU_FIELDS: Final = (
    "gpu_name",
    "gpu_uuid",
    "gpu_count",
    "compute_capability",
    "multiprocessors",
    "gpu_memory_bytes",
    "ecc",
    "mig_mode",
    "mps",
    "persistence",
    "power_limit_w",
    "driver_version",
    "cuda_driver",
    "max_sm_clock_mhz",
    "max_mem_clock_mhz",
)
GPU_CONDITIONS: Final = (
    "sm_clock_mhz",
    "mem_clock_mhz",
    "temperature_c",
    "throttle_reasons",
    "free_memory_bytes",
    "utilisation_percent",
    "other_processes",
)


def load_nvml() -> Any:
    """NVML, initialised. Raises UnreadableError with the reason where it can't be had."""
    try:
        import pynvml
    except ImportError as error:
        raise UnreadableError(f"NVML bindings: {error}") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise UnreadableError(f"NVML: {error}") from error
    return pynvml


def driver_multiprocessors() -> int:
    """Multiprocessors of the first CUDA device: the driver is initialised, but no context is made."""
    try:
        from cuda.bindings import driver

        results = [driver.cuInit(0), driver.cuDeviceGet(0)]
        attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        if results[1][0] == 0:
            results.append(driver.cuDeviceGetAttribute(attribute, results[1][1]))
    except (ImportError, RuntimeError) as error:
        raise UnreadableError(f"CUDA driver: {str(error).splitlines()[0]}") from error
    for status, *_value in results:
        if status != 0:
            raise UnreadableError(f"CUDA driver: {status.name}")
    return int(results[-1][1])


def read_gpu(
    load: Callable[[], Any],
    multiprocessors: Callable[[], int],
    *,
    device_name: str,
    root: Path,
    environ: Mapping[str, str],
) -> Readings:
    """Facts about the GPU. When NVML or the GPU can't be had, every field is missing for that reason."""
    try:
        nvml = load()
    except UnreadableError as error:
        return _nothing(str(error))
    try:
        handle = first_visible(nvml, environ, device_name)
        return _identity(nvml, handle, multiprocessors, root, environ) + _conditions(nvml, handle)
    except (UnreadableError, nvml.NVMLError) as error:
        return _nothing(f"NVML: {error}" if isinstance(error, nvml.NVMLError) else str(error))
    finally:
        nvml.nvmlShutdown()


def _nothing(reason: str) -> Readings:
    return Readings(missing=dict.fromkeys((*GPU_FIELDS, *GPU_CONDITIONS), reason))


def first_visible(nvml: Any, environ: Mapping[str, str], device_name: str) -> Any:
    """NVML's handle of the device that CUDA sees first.

    CUDA_VISIBLE_DEVICES may hold an index, a UUID or the start of one, or a MIG device. CUDA counts the
    fastest device first and NVML by bus, so among unlike GPUs an index is settled by the opened device's
    name.
    """
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    if not handles:
        raise UnreadableError("NVML: no GPU")
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    first = "0" if visible is None else visible.partition(",")[0].strip()
    if first.startswith("MIG-"):
        return nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvml.nvmlDeviceGetHandleByUUID(first))
    if first.startswith("GPU-"):
        chosen = [handle for handle in handles if nvml.nvmlDeviceGetUUID(handle).startswith(first)]
    elif first.isdigit():
        chosen = handles[int(first) :][:1]
    else:
        chosen = []
    if not chosen:
        raise UnreadableError(f"CUDA_VISIBLE_DEVICES={visible or ''} shows no GPU")
    if first.isdigit() and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        return _by_name(nvml, chosen[0], handles, device_name)
    return chosen[0]


def _by_name(nvml: Any, chosen: Any, handles: list[Any], device_name: str) -> Any:
    names = {nvml.nvmlDeviceGetName(handle): handle for handle in reversed(handles)}
    return chosen if nvml.nvmlDeviceGetName(chosen) == device_name else names.get(device_name, chosen)


def _identity(
    nvml: Any, handle: Any, multiprocessors: Callable[[], int], root: Path, environ: Mapping[str, str]
) -> Readings:
    def ecc() -> str:
        return _on(nvml.nvmlDeviceGetEccMode(handle)[0])

    def mig() -> str:
        return _on(nvml.nvmlDeviceGetMigMode(handle)[0])

    return read(
        {
            "gpu_name": lambda: nvml.nvmlDeviceGetName(handle),
            "gpu_uuid": lambda: nvml.nvmlDeviceGetUUID(handle),
            "gpu_count": nvml.nvmlDeviceGetCount,
            "compute_capability": lambda: "{}.{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(handle)),
            "multiprocessors": multiprocessors,
            "gpu_memory_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total,
            "ecc": lambda: _or_unsupported(nvml, ecc),
            "mig_mode": lambda: _or_unsupported(nvml, mig),
            "mps": lambda: mps(nvml, handle, root, environ),
            "persistence": lambda: _on(nvml.nvmlDeviceGetPersistenceMode(handle)),
            "power_limit_w": lambda: nvml.nvmlDeviceGetPowerManagementLimit(handle) // 1000,
            "driver_version": nvml.nvmlSystemGetDriverVersion,
            "cuda_driver": lambda: cuda_version(nvml.nvmlSystemGetCudaDriverVersion_v2()),
            "max_sm_clock_mhz": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
            "max_mem_clock_mhz": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM),
        },
        failures=(nvml.NVMLError,),
    )


def _on(mode: int) -> str:
    return "on" if mode else "off"


def _or_unsupported(nvml: Any, reader: Callable[[], str]) -> str:
    """GeForce cards have no ECC and no MIG: that is a fact about them, not a gap in the fingerprint."""
    try:
        return reader()
    except nvml.NVMLError_NotSupported:
        return "unsupported"


def mps(nvml: Any, handle: Any, root: Path, environ: Mapping[str, str]) -> str:
    """``active`` when the MPS daemon's pipes exist or a process computes through it, else ``off``."""
    pipes = environ.get("CUDA_MPS_PIPE_DIRECTORY", MPS_PIPES).lstrip("/")
    if (root / pipes / "control").exists():
        return "active"
    try:
        return "active" if nvml.nvmlDeviceGetMPSComputeRunningProcesses(handle) else "off"
    except nvml.NVMLError_NotSupported:
        return "off"


def _conditions(nvml: Any, handle: Any) -> Readings:
    readers: dict[str, Callable[[], FieldValue]] = {
        "sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "mem_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "throttle_reasons": lambda: throttle_names(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
        "free_memory_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).free,
        "utilisation_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        "other_processes": lambda: other_processes(nvml.nvmlDeviceGetComputeRunningProcesses(handle)),
    }
    return read({}, readers, failures=(nvml.NVMLError,))


def throttle_names(bits: int) -> tuple[str, ...]:
    """Names of the set bits; bits that this table does not know keep their number."""
    return tuple(
        THROTTLE_REASONS.get(1 << place, f"bit_{place}")
        for place in range(bits.bit_length())
        if bits >> place & 1
    )


def other_processes(processes: list[Any]) -> int:
    """Compute processes besides this one; in a container ids may be the host's, and ours then counts too."""
    return sum(process.pid != os.getpid() for process in processes)
