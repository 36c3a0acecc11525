"""The log of clocks and throttling: what NVML says, by name, and why nothing is known."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cudagraph_gate.device import Device
from cudagraph_gate.device.simulated import SimulatedDevice
from cudagraph_gate.fingerprint.reading import UnreadableError
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.pilot.clocks import ClockLog
from cudagraph_gate.records import GpuState, Method, Record


class NvmlError(Exception):
    """NVML's error class, as pynvml has it."""


class Nvml:
    """The NVML of a machine with one GPU."""

    NVMLError = NvmlError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, *, throttled: int = 0, refuses: tuple[str, ...] = (), gpus: int = 1) -> None:
        self.answers: dict[str, Callable[..., Any]] = {
            "nvmlDeviceGetCount": lambda: gpus,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetHandleByUUID": lambda _uuid: 0,
            "nvmlDeviceGetName": lambda _handle: "NVIDIA H200",
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _handle: throttled,
            "nvmlDeviceGetClockInfo": lambda _handle, kind: {1: 1_980, 2: 3_201}[kind],
            "nvmlDeviceGetTemperature": lambda _handle, _kind: 41,
            "nvmlDeviceGetPowerUsage": lambda _handle: 312_500,
        }
        self.answers |= dict.fromkeys(refuses, self._refuse)

    @staticmethod
    def _refuse(*_args: Any) -> Any:
        raise NvmlError("Not Supported")

    def __getattr__(self, function: str) -> Callable[..., Any]:
        return self.answers[function]


class Log:
    """A trial's log of one shape."""

    shape, method = "b1", cast("Method", "explicit")

    def __init__(self) -> None:
        self.states: list[GpuState] = []

    def append(self, record: Record) -> None:
        assert isinstance(record, GpuState)
        self.states.append(record)


GPU = cast("Device", SimpleNamespace(simulated=False, name="NVIDIA H200"))


def sampled(nvml: Nvml) -> GpuState:
    log = Log()
    ClockLog(GPU, log, lambda: nvml).sample("graph", 7)
    return log.states[0]


def test_a_state_tells_clocks_temperature_and_power_of_its_block() -> None:
    assert sampled(Nvml()) == GpuState(
        shape="b1",
        method="explicit",
        path="graph",
        order=7,
        sm_clock_mhz=1_980,
        memory_clock_mhz=3_201,
        temperature_c=41,
        power_mw=312_500,
        throttled_by=(),
    )


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0x1, ()),
        (0x2, ()),
        (0x4 | 0x1, ("sw_power_cap",)),
        (0x8 | 0x40 | 0x80, ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")),
        (0x20 | 0x10, ("sync_boost", "sw_thermal_slowdown")),
    ],
)
def test_reasons_that_lower_the_clocks_are_named_and_idling_is_none(
    bits: int, names: tuple[str, ...]
) -> None:
    assert sampled(Nvml(throttled=bits)).throttled_by == names


def test_every_block_has_its_state() -> None:
    log = Log()
    clocks = ClockLog(GPU, log, Nvml)
    for order in range(3):
        clocks.sample("normal", order)
    assert [(state.path, state.order) for state in log.states] == [("normal", order) for order in range(3)]


def test_what_nvml_refuses_is_absent_with_its_words_and_the_rest_is_there() -> None:
    state = sampled(Nvml(refuses=("nvmlDeviceGetPowerUsage",)))
    assert state.power_mw == NotMeasured(reason="NVML: Not Supported")
    assert state.sm_clock_mhz == 1_980


# --- absence --------------------------------------------------------------------------------------


def no_bindings() -> Any:
    raise UnreadableError("NVML bindings: no module")


@pytest.mark.parametrize(
    ("device", "load", "reason"),
    [
        (SimulatedDevice(), Nvml, "the simulated device has no clocks"),
        (GPU, no_bindings, "NVML bindings: no module"),
        (GPU, lambda: Nvml(gpus=0, refuses=("nvmlDeviceGetHandleByUUID",)), "NVML: no GPU"),
        (
            GPU,
            lambda: Nvml(refuses=("nvmlDeviceGetCount", "nvmlDeviceGetHandleByUUID")),
            "NVML: Not Supported",
        ),
    ],
)
def test_without_clocks_one_state_says_why(device: Device, load: Callable[[], Any], reason: str) -> None:
    log = Log()
    clocks = ClockLog(device, log, load)
    for order in range(3):
        clocks.sample("graph", order)
    assert len(log.states) == 1
    absent = NotMeasured(reason=reason)
    state = log.states[0]
    figures = (state.sm_clock_mhz, state.memory_clock_mhz, state.temperature_c, state.power_mw)
    assert figures == (absent,) * 4
    assert isinstance(state.throttled_by, NotMeasured)


@pytest.mark.gpu
def test_a_gpu_tells_its_clocks_at_little_cost() -> None:
    from cudagraph_gate.device.cuda import CudaDevice

    log, gpu = Log(), CudaDevice()
    clocks = ClockLog(gpu, log)
    clocks.sample("normal", 0)
    start_ns = gpu.clock_ns()
    clocks.sample("graph", 1)
    assert gpu.clock_ns() - start_ns < 50_000_000
    state = log.states[-1]
    assert isinstance(state.sm_clock_mhz, int)
    assert 100 < state.sm_clock_mhz < 4_000
    assert isinstance(state.temperature_c, int)
