"""Opening a device, and the process's current one, which portable workloads are written on."""

from __future__ import annotations

from typing import Literal

from cudagraph_gate.device.port import Device, DeviceArray, Kernel, LaunchShape, Stream
from cudagraph_gate.errors import NoDeviceError

DeviceChoice = Literal["auto", "cuda", "simulated"]

__all__ = [
    "Device",
    "DeviceArray",
    "DeviceChoice",
    "Kernel",
    "LaunchShape",
    "Stream",
    "current_device",
    "make_current",
    "open_device",
]

_current: Device | None = None


def open_device(choice: DeviceChoice = "auto") -> Device:
    """Open a device and make it the process's current one.

    ``auto`` is the GPU if there is one, else the simulated device. Raises NoDeviceError when ``cuda`` is
    asked for and can't be had.
    """
    global _current
    _current = _open(choice)
    return _current


def current_device() -> Device:
    """The device that this process opened last; opens ``auto`` if it opened none."""
    return _current if _current is not None else open_device()


def make_current(device: Device) -> None:
    """Make an open device the process's current one again, after another one was opened and closed."""
    global _current
    _current = device


def _open(choice: DeviceChoice) -> Device:
    from cudagraph_gate.device.simulated import SimulatedDevice

    if choice == "simulated":
        return SimulatedDevice()
    try:
        from cudagraph_gate.device.cuda import CudaDevice

        return CudaDevice()
    except NoDeviceError:
        if choice == "cuda":
            raise
        return SimulatedDevice()
