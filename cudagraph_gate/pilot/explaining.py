"""Why the graph path differs from the normal one: the kind of fault, found by trying it again otherwise.

A wrong output says that a graph must not be used. What kind of fault it is, and what to change, shows when
one condition after the other is taken away, and when the step is captured once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

import numpy as np

from cudagraph_gate.device.port import Graph, HostArray
from cudagraph_gate.errors import CgateError
from cudagraph_gate.graphs import GraphedStep
from cudagraph_gate.graphs.arguments import FreedArgument, OtherNodes, changed_since
from cudagraph_gate.model import Reason
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.comparing import Trajectory, difference
from cudagraph_gate.pilot.correctness import Expectation
from cudagraph_gate.pilot.graph_path import GraphPath
from cudagraph_gate.pilot.host_endpoints import pageable_copies
from cudagraph_gate.pilot.own_path import OwnPath, own_path
from cudagraph_gate.pilot.session import Session

NOISE_ELEMENTS: Final = 64
"""Fewer differing elements say nothing about chance."""
NOISE_CORRELATION: Final = (-0.75, -0.25)
"""Differences of independent draws a-b and b-c share -b and b: their correlation is -1/2. A counter or a
schedule gives +1, two values that take turns give -1."""

CAPTURED_AGAIN: Final = 3
"""Further captures, each after one more ``between``."""
_KEEP: Final = "keep every array that the step reads for as long as the graph lives"
Runs = tuple[HostArray, HostArray, HostArray]
"""One value in three runs."""


@dataclass(frozen=True)
class Explanation:
    """The kind of fault, in a sentence, and what to change."""

    code: Reason
    message: str
    advice: str
    call: str = ""


@dataclass(frozen=True)
class Case:
    """A graph path that was followed and differs."""

    session: Session
    path: GraphPath
    expected: Expectation
    actual: Trajectory
    poison: Callable[[int], None]
    """Prepares each request, without any churn of memory."""
    disturb: Callable[[int], None]
    """The same with it."""
    moved: bool = False
    """Whether state lay elsewhere than at the capture, which is explanation enough."""

    def differing_state(self) -> dict[str, list[tuple[HostArray, HostArray]]]:
        """State entries that differ after some request, with both values of each such request."""
        found: dict[str, list[tuple[HostArray, HostArray]]] = {}
        for want, got in zip(self.expected.normal.moments, self.actual.moments, strict=True):
            for name, value in want.state.items():
                other = got.state.get(name)
                if difference(value, other).error > self.expected.tolerances.get(f"state {name}", 0.0):
                    found.setdefault(name, []).append((np.asarray(value), np.asarray(other)))
        return found

    def differing_outputs(self) -> list[str]:
        """Names of the outputs that differ after some request, beyond their tolerance."""
        found: dict[str, None] = {}
        for want, got in zip(self.expected.normal.moments, self.actual.moments, strict=True):
            for name in want.outputs.keys() | got.outputs.keys():
                limit = self.expected.tolerances.get(f"output {name}", 0.0)
                if difference(want.outputs.get(name), got.outputs.get(name)).error > limit:
                    found[name] = None
        return [*found]


def explain(case: Case) -> Explanation | None:
    """What kind of fault makes the graph path differ from the normal one; None: nothing gives it away."""
    looks = (_gradients, _rebound) if case.moved else (_gradients, _rebound, *_LOOKS)
    for look in looks:
        found = look(case)
        if found is not None:
            return found
    return None


# --- kinds ----------------------------------------------------------------------------------------


def _rebound(case: Case) -> Explanation | None:
    """State that the step itself binds to a new array at each call: replays leave the old one in place."""
    session = case.session
    differing = case.differing_state()
    if not differing:
        return None
    before = correctness.addresses(session)
    held = session.state()  # keeps the old arrays, so that a new one lies elsewhere
    session.call(tuple(map(session.adapter.static_like, case.expected.start.requests[0])))
    session.adapter.synchronize()
    after = correctness.addresses(session)
    del held
    moved = [name for name in differing if after.get(name) != before.get(name)]
    if not moved:
        return None
    return Explanation(
        Reason.FROZEN_HOST_STATE,
        f"each call of the step binds {', '.join(moved)} to a new array; a replay runs no Python, "
        "so it stays bound to the last one",
        "write the values into one array in place (copy_), and read them from there",
    )


def _host_memory(case: Case) -> Explanation | None:
    """The graph copies from host memory that nothing keeps alive."""
    copies = pageable_copies(getattr(case.path, "graph", None))
    if not copies:
        return None
    return Explanation(
        Reason.LIFETIME,
        f"each replay copies {copies[0].nbytes} bytes {copies[0].detail.partition(' ')[2]} "
        f"(node {copies[0].index}), and the graph keeps no more of that memory than its address",
        "keep that memory alive and in place for as long as the graph lives, or keep it on the device",
        call="cudaMemcpyAsync",
    )


def _freed(case: Case) -> Explanation | None:
    """Right while nothing else allocates: the graph reads memory that belongs to nobody any more."""
    again = correctness.follow(case.session, case.path.replay, case.expected.start, before_each=case.poison)
    if not all(found.equal for found in correctness.compare_paths(case.session, case.expected, again)):
        return None
    return Explanation(
        Reason.LIFETIME,
        "replays are right until other work allocates: the graph reads memory that was freed meanwhile",
        _KEEP,
    )


def _let_go(case: Case) -> Explanation | None:
    """An own path that is right where nothing is freed that was allocated while it was made and used.

    Made once more without that it must still be wrong: being made again may be all that it needed.
    """
    if not isinstance(case.path, OwnPath) or _made_again(case) or not _made_again(case, kept=True):
        return None
    return Explanation(
        Reason.LIFETIME,
        "made where nothing that it allocates is freed, build_graphed's path is right: "
        "its graph reads memory that its owner has let go of",
        _KEEP,
    )


def _made_again(case: Case, *, kept: bool = False) -> bool:
    """Whether another path of the same kind is right."""
    session, start = case.session, case.expected.start
    example = tuple(map(session.adapter.static_like, start.requests[0]))
    try:
        with session.adapter.keeping_arrays() if kept else nullcontext():
            path = own_path(session, example)
            actual = correctness.follow(session, path.replay, start, before_each=case.disturb)
            session.device.synchronize()
    except (Exception, SystemExit):  # noqa: BLE001  (what can't be made explains nothing)
        return False
    return all(found.equal for found in correctness.compare_paths(session, case.expected, actual))


def _out_of_date(case: Case) -> Explanation | None:
    """Numbers of the host that were recorded by value and have changed since, and freed memory."""
    path = case.path
    if not isinstance(path, GraphedStep) or path.graph is None:
        return None
    changed = None
    for request in range(CAPTURED_AGAIN):
        case.session.between(request)  # what it changes need not show at the end of a trajectory
        with _captured_again(path) as again:
            changed = changed or (None if again is None else changed_since(path.graph, again))
    if changed is None:
        return None
    if isinstance(changed, FreedArgument):
        return Explanation(
            Reason.LIFETIME,
            f"the graph reads memory that was freed since its capture ({changed.shown})",
            _KEEP,
            call=changed.kernel,
        )
    if isinstance(changed, OtherNodes):
        return Explanation(
            Reason.FROZEN_HOST_STATE,
            f"the step takes another way now than when it was captured ({changed.shown}): "
            "the graph repeats the old one",
            "decide on the device, or make one graph for each way",
        )
    return Explanation(
        Reason.FROZEN_HOST_STATE,
        f"the graph keeps a number of the host as it was at the capture ({changed.shown})",
        "keep what changes from call to call (learning rates, counters, seeds) in device memory",
        call=changed.kernel,
    )


def _gradients(case: Case) -> Explanation | None:
    """Nothing but gradients differs."""
    names = [*case.differing_state(), *case.differing_outputs()]
    if not names or not all(name.endswith(".grad") for name in names):
        return None
    return Explanation(
        Reason.GRADIENT,
        f"nothing but gradients differs ({names[0]}): they are written over where they must be added up",
        "allocate .grad before the capture, or keep one micro-batch for each step",
    )


def _padding(case: Case) -> Explanation | None:
    """Outputs agree, and of the state only the last entries of an axis differ, where a slot of -1 writes."""
    differing = case.differing_state()
    if not differing or case.differing_outputs():
        return None
    for name, pairs in differing.items():
        if not all(_only_last_row(want, got) for want, got in pairs):
            return None
        last = pairs[0][0].shape[0] - 1
        return Explanation(
            Reason.PADDING,
            f"outputs agree, and of state {name} only row {last}, the last one, differs: "
            "padded entries with index -1 write there",
            "give padded entries a slot of their own, beyond the real ones",
        )
    return None


_LOOKS: Final = (_host_memory, _freed, _let_go, _out_of_date, _padding)
"""In the order in which they tell most."""


# --- small parts ----------------------------------------------------------------------------------


def _only_last_row(want: HostArray, got: HostArray) -> bool:
    if want.ndim == 0 or want.shape != got.shape or want.shape[0] < 2:
        return False
    return bool(np.array_equal(want[:-1], got[:-1], equal_nan=want.dtype.kind in "fc"))


@contextmanager
def _captured_again(path: GraphedStep) -> Iterator[Graph | None]:
    """A further graph of the same step for the block; None where it can't be made."""
    source = path.source
    try:
        static = source.static_inputs(path.example)
        path.adapter.synchronize()
        graph = source.capture(static).graph
    except (CgateError, RuntimeError, ValueError, TypeError):
        yield None
        return
    try:
        yield graph
    finally:
        graph.destroy()


def drawn_by_chance(session: Session, expected: Expectation, name: str) -> bool:
    """Whether three runs of the normal path from one state differ in ``name`` as independent draws do."""
    third = correctness.follow(session, session.call, expected.start)
    return noise_like(_runs_of(name, expected.normal, expected.repeated, third))


def noise_like(values: Iterator[Runs]) -> bool:
    """Whether a value differs from run to run as independent draws do, over all requests together."""
    shared = total = 0.0
    elements = 0
    for one, two, three in values:
        if one.dtype.kind not in "iufb":
            continue
        a, b, c = (np.nan_to_num(each.astype(np.float64)).ravel() for each in (one, two, three))
        left, right = a - b, b - c
        elements += int(np.count_nonzero(left))
        shared += float(left @ right)
        total += float(np.sqrt((left @ left) * (right @ right)))
    low, high = NOISE_CORRELATION
    return elements >= NOISE_ELEMENTS and total > 0 and low < shared / total < high


def _runs_of(name: str, *paths: Trajectory) -> Iterator[Runs]:
    """One value in three runs of the same requests."""
    for moments in zip(*(path.moments for path in paths), strict=True):
        one, two, three = (moment.values().get(name) for moment in moments)
        if isinstance(one, np.ndarray) and isinstance(two, np.ndarray) and isinstance(three, np.ndarray):
            yield one, two, three
