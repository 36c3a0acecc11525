"""Who else uses the GPU: device-wide memory is theirs as well, and must not be taken from them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from cudagraph_gate.device import Device
from cudagraph_gate.fingerprint.gpu import first_visible, load_nvml
from cudagraph_gate.fingerprint.reading import UnreadableError
from cudagraph_gate.model import Measured, NotMeasured


def other_processes(device: Device) -> Measured:
    """How many other processes have a context on this GPU; the simulated one has none."""
    if device.simulated:
        return 0
    try:
        nvml = load_nvml()
    except UnreadableError as error:
        return NotMeasured(reason=f"whether other processes use the GPU is not known ({error})")
    try:
        handle = first_visible(nvml, os.environ, device.name)
        listed = [process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    except (UnreadableError, nvml.NVMLError) as error:
        return NotMeasured(reason=f"whether other processes use the GPU is not known ({error})")
    finally:
        nvml.nvmlShutdown()
    return strangers(listed, lineage(os.getpid()))


def strangers(listed: Sequence[int], own: Sequence[int]) -> int:
    """How many of the listed processes are neither this one, ``own[0]``, nor one that started it.

    In a container NVML may list this process, which surely uses the GPU, under an id of the host's.
    """
    unknown = sum(pid not in own for pid in listed)
    return unknown if own[0] in listed else max(0, unknown - 1)


def lineage(pid: int, root: Path = Path("/proc")) -> list[int]:
    """A process and those that started it, as far as ``/proc`` tells (``man 5 proc``)."""
    known = []
    while pid > 0 and pid not in known:
        known.append(pid)
        try:  # the name, in brackets, may hold spaces: the state and the parent's id stand behind it
            pid = int((root / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    return known
