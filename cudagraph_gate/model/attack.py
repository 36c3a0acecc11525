"""The hard scenarios by name: what is injected, what must come of it, and how their workers must end."""

from __future__ import annotations

from typing import Final, Literal

from cudagraph_gate.model.base import Value

WorkerOutcome = Literal["finished", "failed", "crashed", "timed_out", "killed"]


class Scenario(Value, frozen=True, kw_only=True):
    """One attack on the trial; :mod:`cudagraph_gate.pilot.scenarios` runs it."""

    name: str
    injected: str
    """The fault, in a few words."""
    expected: str
    """What must come of it."""
    ends: tuple[WorkerOutcome, ...] = ("finished",)
    """How each of its workers must end, one after the other: a lost process is replaced by the next."""
    limit_s: float | None = None
    """Longest time without progress from the fault on, where a worker is meant to hang."""
    quick: bool = False
    """Whether ``--quick`` runs it."""
    own_path: bool = False
    """Whether it can be put to a graph path of the workload's own."""
    lost_parts: tuple[int, ...] = ()
    """Workers that can't use the device any more after the fault: what it left is proved in the next one."""


DRILL: Final = "drill"
"""The scenario that gate 7 asks for; all others belong to gate 5."""

SCENARIOS: Final = (
    Scenario(
        name="capture-failure",
        injected="a prohibited call at random points of the captured step",
        expected="refused; the step falls back, and a new capture in the same process is right",
        quick=True,
    ),
    Scenario(
        name="user-exception",
        injected="an exception at random points of the captured step",
        expected="it reaches the caller; nothing captures any more, and a new capture is right",
    ),
    Scenario(
        name="sync-inside",
        injected="a stream synchronisation, and work on the legacy stream, inside capture",
        expected="refused or left out of the graph, never half recorded; a new capture is right",
    ),
    Scenario(
        name="unjoined-stream",
        injected="a side stream forked inside capture and never joined",
        expected="refused by that name; a new capture is right",
    ),
    Scenario(
        name="noisy-neighbour",
        injected="another thread allocates, pins memory and synchronises while 20 captures run",
        expected="every capture is right, and the other thread goes on",
        quick=True,
    ),
    Scenario(
        name="wrong-inputs",
        injected="inputs of another number, shape, dtype, device or stride, and values out of range",
        expected="each is refused before anything is copied or launched; the next request is right",
        quick=True,
    ),
    Scenario(
        name="topology-change",
        injected="an update with a graph of another topology",
        expected="refused with the driver's result by name; the old executable is given up for good",
    ),
    Scenario(
        name="oom-at-capture",
        injected="device memory filled before the capture",
        expected="refused for want of memory, or none was needed; the normal path goes on",
    ),
    Scenario(
        name="oom-at-instantiate",
        injected="device memory filled between capture and instantiation",
        expected="refused for want of memory, or none was needed; the normal path goes on",
    ),
    Scenario(
        name="oom-at-instance",
        injected="device memory filled while instance after instance is made",
        expected="the one that does not fit is refused; those before it stay right",
    ),
    Scenario(
        name="device-fault",
        injected="a kernel that writes to an illegal address",
        expected="every later call fails by name, no graph is launched again; a new process is right",
        ends=("finished", "finished"),
        lost_parts=(0,),
    ),
    Scenario(
        name="context-rebuild",
        injected="the device context is given up and made anew",
        expected="graphs of the old context are never served again; those made anew are right",
    ),
    Scenario(
        name="hang",
        injected="a request that never ends",
        expected="the watchdog ends its process and names the place; a new process is right",
        ends=("timed_out", "finished"),
        limit_s=8.0,
        lost_parts=(0,),
    ),
    Scenario(
        name="cancelled-request",
        injected="requests given up before the copy, between copy and replay, and during the replay",
        expected="the next request is right, and no replay is left over",
        own_path=True,
    ),
    Scenario(
        name="model-switch",
        injected="another model takes over and the first one comes back, their graphs cached",
        expected="each serves with its own weights, and memory returns when both are dropped",
        quick=True,
    ),
    Scenario(
        name="version-upgrade",
        injected="each component of the cache key changes",
        expected="the old graph is not served under the new key, nor lost under the old one",
    ),
    Scenario(
        name="eviction-under-load",
        injected="a cache of one graph under requests of several keys from several threads",
        expected="no graph is freed while it is leased or runs, and every output is right",
    ),
    Scenario(
        name="allocator-churn",
        injected="inputs and garbage freed, their memory reused and overwritten between replays",
        expected="replays read nothing that was freed",
        quick=True,
        own_path=True,
    ),
    Scenario(
        name="shared-executable",
        injected="two threads on one executable graph",
        expected="requests take turns, and each gets its own output",
    ),
    Scenario(
        name="instances-with-canaries",
        injected="several instances on their own streams at a time, canaries around each request",
        expected="every output is right and every canary intact",
    ),
    Scenario(
        name=DRILL,
        injected="the graph cache is turned off in the middle of traffic",
        expected="no request is lost; outputs, latency and memory of the normal path are as before",
        quick=True,
        own_path=True,
    ),
)
"""All of them, in the order in which they run."""

SCENARIO_BY_NAME: Final = {scenario.name: scenario for scenario in SCENARIOS}
