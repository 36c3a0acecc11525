"""Clocks, temperature, power and throttling of the GPU after each timed block, from NVML."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from cudagraph_gate.device import Device
from cudagraph_gate.fingerprint import Sources
from cudagraph_gate.fingerprint.gpu import first_visible, load_nvml, throttle_names
from cudagraph_gate.fingerprint.reading import UnreadableError
from cudagraph_gate.model import Measured, NotMeasured
from cudagraph_gate.records import GpuState, Method, PathName, Record

NOT_THROTTLING: Final = frozenset({"gpu_idle", "applications_clocks_setting"})
"""An idle GPU's clocks may fall, and a chosen clock is one: neither holds back work that runs."""
_SIMULATED: Final = "the simulated device has no clocks"


class ClockSink(Protocol):
    """Where the states go: the trial's log."""

    shape: str
    method: Method

    def append(self, record: Record) -> None:
        """Write one record."""


class ClockLog:
    """Logs the GPU's state when asked; five NVML queries, while nothing is timed.

    Where nothing can be read, one record says why. ``load`` returns NVML or raises UnreadableError.
    """

    def __init__(self, device: Device, log: ClockSink, load: Callable[[], Any] = load_nvml) -> None:
        self._log = log
        self._told = False
        self._nvml: Any = None
        self._handle: Any = None
        self._absent = _SIMULATED if device.simulated else self._open(load, device.name)

    def _open(self, load: Callable[[], Any], device_name: str) -> str:
        """Find the GPU; why it can't be found, else nothing."""
        try:
            nvml = load()
        except UnreadableError as error:
            return str(error)
        try:
            self._handle = _handle(nvml, device_name)
        except (UnreadableError, nvml.NVMLError) as error:
            return f"NVML: {error}" if isinstance(error, nvml.NVMLError) else str(error)
        self._nvml = nvml
        return ""

    def sample(self, path: PathName, order: int) -> None:
        """Log the state after the block of ``path`` at position ``order``."""
        if self._nvml is not None:
            self._log.append(self._state(path, order))
        elif not self._told:
            self._told = True
            absent = NotMeasured(reason=self._absent)
            self._log.append(self._record(path, order, [absent] * 4, absent))

    def _state(self, path: PathName, order: int) -> GpuState:
        nvml, handle = self._nvml, self._handle
        queries: tuple[Callable[[], int], ...] = (
            # First what changes fastest once the GPU is idle.
            lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
            lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            lambda: nvml.nvmlDeviceGetPowerUsage(handle),
        )
        bits, *values = (self._read(query) for query in queries)
        if isinstance(bits, NotMeasured):
            return self._record(path, order, values, bits)
        slowing = tuple(name for name in throttle_names(bits) if name not in NOT_THROTTLING)
        return self._record(path, order, values, slowing)

    def _read(self, query: Callable[[], int]) -> Measured:
        try:
            return query()
        except self._nvml.NVMLError as error:
            return NotMeasured(reason=f"NVML: {error}")

    def _record(
        self, path: PathName, order: int, values: list[Measured], throttled: tuple[str, ...] | NotMeasured
    ) -> GpuState:
        sm_clock, memory_clock, temperature, power = values
        return GpuState(
            shape=self._log.shape,
            method=self._log.method,
            path=path,
            order=order,
            sm_clock_mhz=sm_clock,
            memory_clock_mhz=memory_clock,
            temperature_c=temperature,
            power_mw=power,
            throttled_by=throttled,
        )


def _handle(nvml: Any, device_name: str) -> Any:
    """NVML's handle of the opened device, by UUID; where that is not known, as the fingerprint finds it."""
    if uuid := _uuid():
        with suppress(nvml.NVMLError):  # of a MIG device, which NVML knows by another prefix
            return nvml.nvmlDeviceGetHandleByUUID(uuid)
    return first_visible(nvml, Sources().environ, device_name)


def _uuid() -> str:
    """``GPU-…`` as NVML writes it, of the device whose context is current; empty where there is none."""
    try:
        from cuda.bindings import driver

        status, device = driver.cuCtxGetDevice()
        if status != 0:
            return ""
        status, uuid = driver.cuDeviceGetUuid(device)
    except (ImportError, RuntimeError):  # no bindings, no driver
        return ""
    if status != 0:
        return ""
    digits = bytes(uuid.bytes).hex()
    return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
