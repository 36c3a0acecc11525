"""What the name of a CUDA or HIP call says about it, for every recorder and importer."""

from __future__ import annotations

import re
from typing import Final

BLOCKING: Final = re.compile(r"Synchronize|^(cu|cuda|hip)Memcpy(?!.*Async)(?!.*Batch)")
"""Calls that wait for the device: synchronisation, and copies that are not asynchronous."""
GRAPH_LAUNCH: Final = "GraphLaunch"
"""Part of the name of every call that launches a graph: cudaGraphLaunch, cuGraphLaunch, hipGraphLaunch."""
KERNEL_LAUNCH: Final = re.compile(r"^(cu|cuda|hip)(Ext)?(Module)?Launch(?!HostFunc)")
"""Calls that launch one kernel: cudaLaunchKernelExC, cuLaunchKernel, hipExtModuleLaunchKernel and so on."""
DRIVER: Final = re.compile(r"^cu[A-Z]|^hip(Ext)?Module")
"""Names of the driver API; HIP has one API, whose module calls are the driver's twins."""
BEGIN_CAPTURE: Final = "StreamBeginCapture"
END_CAPTURE: Final = "StreamEndCapture"
"""Parts of the names of the calls between which launches are recorded into a graph and not run."""


def is_blocking(name: str) -> bool:
    """Whether the call waits for the device."""
    return BLOCKING.search(name) is not None


def is_graph_launch(name: str) -> bool:
    """Whether the call launches a graph."""
    return GRAPH_LAUNCH in name


def is_kernel_launch(name: str) -> bool:
    """Whether the call launches one kernel."""
    return KERNEL_LAUNCH.search(name) is not None


def is_launch(name: str) -> bool:
    """Whether the call launches a kernel or a graph."""
    return is_kernel_launch(name) or is_graph_launch(name)


def is_driver(name: str) -> bool:
    """Whether the call belongs to the driver API."""
    return DRIVER.search(name) is not None
