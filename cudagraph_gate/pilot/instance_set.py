"""Several instances of one step in one process: how they are made, and whether they leave each other alone.

First all graphs are captured from one built step, as in a server whose requests share a model. A step that
keeps buffers or state of its own can't serve several requests at a time like that: then each instance gets
a build of its own. Where requests share state even so, the instances are only used in turns.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations, count, product
from typing import Any, Final

from cudagraph_gate.graphs import GraphedStep
from cudagraph_gate.model import Measured, NotMeasured
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.blame import blame
from cudagraph_gate.pilot.comparing import Trajectory, compare_values
from cudagraph_gate.pilot.correctness import Expectation, expect, follow, span
from cudagraph_gate.pilot.describing import described
from cudagraph_gate.pilot.graph_path import ready_graph
from cudagraph_gate.pilot.jobs import RungJob
from cudagraph_gate.pilot.session import Inputs, Loaded, Session, opened
from cudagraph_gate.records import Phase
from cudagraph_gate.workload import flatten

INSTANCES: Final = 4
"""Enough that replays overlap in more than one way and that memory per instance has a median; a request mix
that needs more graphs of one shape at a time is rare."""
TURNS: Final = 2
"""How often each instance is watched over a whole trajectory while the others replay: a race may not show
the first time, and the second time the instances are submitted in another order."""


class Arrangement(StrEnum):
    """What the instances share."""

    SHARED = "shared"
    """All graphs are captured from one built step; requests overlap."""
    OWN = "own"
    """Each instance has a build of its own; requests overlap."""
    TURNS = "turns"
    """All graphs are captured from one built step, whose state admits one request at a time."""


@dataclass(frozen=True)
class Instance:
    """One graph with a stream of its own, and the step that does the same the normal way."""

    session: Session
    graph: GraphedStep
    expected: Expectation
    """The normal path run alone; the requests of no two instances are in the same order."""
    stream: Any


@dataclass(frozen=True)
class Checked:
    """Requests of each instance, how many of all differ from the normal path, and the first one that does."""

    requests: int
    wrong: int = 0
    detail: str = ""


@dataclass(frozen=True)
class InstanceSet:
    """The instances that were made, and what checking them said."""

    arrangement: Arrangement
    instances: tuple[Instance, ...]
    bytes_per_instance: Measured
    """Device memory that each further instance takes, median."""
    checked: Checked
    note: str = ""
    """Why the instances do not share one step and overlap, if they don't."""

    def release(self) -> None:
        """Destroy the graphs."""
        for instance in self.instances:
            instance.graph.invalidate()


@dataclass(frozen=True)
class _Opened:
    """A build that has answered a request."""

    session: Session
    input_sets: Sequence[Inputs]
    example: Inputs
    """Inputs to warm up and capture with, which a step may change."""

    @classmethod
    def of(cls, loaded: Loaded, job: RungJob) -> _Opened:
        session = opened(loaded, job.shape, job.seed)
        # What the application does between requests was tried on the first rung; here requests overlap.
        session = replace(session, workload=replace(session.workload, between=None))
        input_sets = session.input_sets(job.seed)
        baked = session.baked(input_sets, input_sets[0])
        example = tuple(session.adapter.static_like(value) for value in baked[0])
        session.device.synchronize()
        return cls(session, baked, example)


Announce = Callable[[str], None]
"""Says what is going on."""
Watch = Callable[[Sequence[Instance], int, int], Trajectory]
"""``(instances, number of the watched one, turn)``."""


def prepare(loaded: Loaded, job: RungJob, announce: Announce) -> InstanceSet:
    """Make the instances in the first arrangement in which they give the outputs of the normal path.

    Where none does, ``checked`` says what is wrong. Release the set in any case. Raises what the
    workload or the device raised where no arrangement could be tried.
    """
    return _Preparing(loaded, job, announce).run()


@dataclass(frozen=True)
class _Preparing:
    """Arrangements of one workload's instances, tried one after the other."""

    loaded: Loaded
    job: RungJob
    announce: Announce

    def run(self) -> InstanceSet:
        opened = _Opened.of(self.loaded, self.job)
        expected = expect(opened.session, opened.input_sets)
        if why := _remembers(opened.session, expected):
            own = self._own_builds(why)
            return own if isinstance(own, InstanceSet) else self._in_turns(f"{why}; {own}")
        session, expected = _stateless(opened.session, expected)
        shared = self._of_one_step(replace(opened, session=session), expected, Arrangement.SHARED)
        if not shared.checked.wrong:
            return shared
        shared.release()
        own = self._own_builds(f"graphs of one built step disturb each other ({shared.checked.detail})")
        return own if isinstance(own, InstanceSet) else replace(shared, note=own)

    def _own_builds(self, why: str) -> InstanceSet | str:
        """A build for each instance, or why that does not help."""
        made: list[Instance] = []
        bytes_each: list[int] = []
        with ExitStack() as cleaning:
            try:
                for number in range(INSTANCES):
                    instance, nbytes = self._own_build(number)
                    cleaning.callback(instance.graph.invalidate)
                    made.append(instance)
                    bytes_each.append(nbytes)
                checked = self._check(made, _overlapping)
            except Exception as error:  # noqa: BLE001  (whatever it is, it only rules this arrangement out)
                found = blame(error, self.job.shape, Phase.INSTANCES, self.loaded.workload.folder)
                return f"a build for each instance fails: {found.message}"
            if checked.wrong:
                return f"a build for each instance does not help: {checked.detail}"
            cleaning.pop_all()
        return InstanceSet(Arrangement.OWN, tuple(made), _median(bytes_each), checked, note=why)

    def _own_build(self, number: int) -> tuple[Instance, int]:
        """One more build with its graph, and the device memory that both take."""
        self.announce(f"build and graph of instance {number}")
        before = _used_bytes(self.loaded)
        opened = _Opened.of(self.loaded, self.job)
        session, sets = opened.session, opened.input_sets
        graph = ready_graph(session, opened.example)
        ours = sum(map(session.adapter.nbytes, _all([*sets, opened.example])))
        nbytes = _used_bytes(self.loaded) - before - ours
        try:
            # At once: the next build may rebind what this step finds in its module.
            expected = expect(session, _rotated(sets, number))
            if not _remembers(session, expected):
                session, expected = _stateless(session, expected)
        except BaseException:
            graph.invalidate()
            raise
        return Instance(session, graph, expected, session.adapter.new_stream()), nbytes

    def _in_turns(self, why: str) -> InstanceSet:
        # Anew: the builds before may have taken the first one's place in the module.
        opened = _Opened.of(self.loaded, self.job)
        expected = expect(opened.session, opened.input_sets)
        return replace(self._of_one_step(opened, expected, Arrangement.TURNS), note=why)

    def _of_one_step(self, opened: _Opened, expected: Expectation, arrangement: Arrangement) -> InstanceSet:
        session, overlap = opened.session, arrangement is Arrangement.SHARED
        made: list[Instance] = []
        bytes_each: list[int] = []
        with ExitStack() as cleaning:
            for number in range(INSTANCES):
                self.announce(f"graph of instance {number}")
                before = _used_bytes(session)
                graph = ready_graph(session, opened.example)
                cleaning.callback(graph.invalidate)
                bytes_each.append(_used_bytes(session) - before)
                own = _shifted(expected, number) if overlap else expected
                made.append(Instance(session, graph, own, session.adapter.new_stream()))
            checked = self._check(made, _overlapping if overlap else _turn_by_turn)
            cleaning.pop_all()
        return InstanceSet(arrangement, tuple(made), _median(bytes_each), checked)

    def _check(self, instances: Sequence[Instance], watch: Watch) -> Checked:
        """Each instance's trajectories beside the others, compared with the normal path's."""
        wrong, first = 0, ""
        for turn, (number, own) in product(range(TURNS), enumerate(instances)):
            self.announce(f"requests of instance {number} beside the others")
            actual = watch(instances, number, turn)
            found = correctness.compare_paths(own.session, own.expected, actual)
            bad = [comparison for comparison in found if not comparison.equal]
            wrong += len({comparison.request for comparison in bad})
            first = first or (f"instance {number}, {described(bad[0])}" if bad else "")
        if wrong and (shared := _shared_memory(instances)):
            first = f"{first}; {shared}"
        return Checked(TURNS * len(instances[0].expected.start.requests), wrong, first)


def _remembers(session: Session, expected: Expectation) -> str:
    """What one request leaves behind for the next, or empty: then outputs follow from the inputs alone."""
    if expected.start.changing:
        return f"requests change state {', '.join(sorted(expected.start.changing))}"
    first = expected.start.requests[0]
    once, again = follow(session, session.call, replace(expected.start, requests=[first, first])).moments
    name = session.shape_name
    same = compare_values(name, 0, "normal_repeat", once.values(), again.values(), expected.tolerances)
    return "" if same.equal else f"{same.detail} also depends on earlier requests (state or random numbers)"


def _stateless(session: Session, expected: Expectation) -> tuple[Session, Expectation]:
    """Without the state that no request changes: it need not be restored and compared each time."""
    workload = replace(session.workload, state=dict)
    normal, repeated = (
        Trajectory(path.moments, final_state={}) for path in (expected.normal, expected.repeated)
    )
    start = replace(expected.start, state={})
    return replace(session, workload=workload), replace(
        expected, start=start, normal=normal, repeated=repeated
    )


def _shifted(expected: Expectation, by: int) -> Expectation:
    """The same requests in another order: for a step that remembers nothing, the same outputs."""
    start = replace(expected.start, requests=_rotated(expected.start.requests, by))
    normal, repeated = (
        replace(path, moments=tuple(_rotated(path.moments, by)))
        for path in (expected.normal, expected.repeated)
    )
    return replace(expected, start=start, normal=normal, repeated=repeated)


# --- checking -------------------------------------------------------------------------------------


def _overlapping(instances: Sequence[Instance], watched: int, turn: int) -> Trajectory:
    """The watched instance's trajectory; in each request all others replay requests of their own.

    Its outputs are read when all are done: another instance that writes into them shows.
    """
    own = instances[watched]
    rounds = count()

    def request(passed: Inputs) -> Any:
        own.session.adapter.synchronize()
        number = next(rounds)
        order = _rotated(instances, number + turn)
        given = [passed if each is own else each.expected.start.requests[number] for each in order]
        return submit(order, given, replay)[order.index(own)]

    return follow(own.session, request, own.expected.start)


def _turn_by_turn(instances: Sequence[Instance], watched: int, turn: int) -> Trajectory:
    """One trajectory whose requests are served by one instance after the other."""
    rounds = count(watched + turn)

    def request(passed: Inputs) -> Any:
        each = instances[next(rounds) % len(instances)]
        each.session.adapter.synchronize()
        return submit([each], [passed], replay)[0]

    own = instances[watched]
    return follow(own.session, request, own.expected.start)


Enqueue = Callable[[Instance, Inputs], Any]


def replay(instance: Instance, inputs: Inputs) -> Any:
    """One request by the graph."""
    return instance.graph.replay(inputs)


def step(instance: Instance, inputs: Inputs) -> Any:
    """One request by the normal step, called bare."""
    return instance.session.step(*inputs)


def submit(instances: Sequence[Instance], requests: Sequence[Inputs], enqueue: Enqueue) -> list[Any]:
    """One request to each instance on its own stream, then wait for all; returns what each returned."""
    returned = []
    for instance, inputs in zip(instances, requests, strict=True):
        with instance.session.adapter.on_stream(instance.stream):
            returned.append(enqueue(instance, inputs))
    for instance in instances:
        with instance.session.adapter.on_stream(instance.stream):
            instance.session.adapter.synchronize()
    return returned


def _shared_memory(instances: Sequence[Instance]) -> str:
    """Which output of two instances lies in the same memory, if one does."""
    for (left, one), (right, other) in combinations(enumerate(instances), 2):
        for name, (low, high) in _spans(one):
            if any(start < high and low < end for _name, (start, end) in _spans(other)):
                return f"output {name} of instances {left} and {right} lies in the same memory"
    return ""


def _spans(instance: Instance) -> Iterator[tuple[str, tuple[int, int]]]:
    adapter = instance.session.adapter
    for name, leaf in flatten(instance.graph.outputs):
        if adapter.is_device_array(leaf):
            yield name, span(adapter, leaf)


# --- small parts ----------------------------------------------------------------------------------


def _rotated(values: Sequence[Any], by: int) -> list[Any]:
    first = by % len(values)
    return [*values[first:], *values[:first]]


def _all(sets: Sequence[Inputs]) -> list[Any]:
    """Every array of the sets once: inputs that are baked in stand in all of them."""
    return list({id(value): value for values in sets for value in values}.values())


def _used_bytes(owner: Session | Loaded) -> int:
    """Device-wide, with the device idle."""
    owner.device.synchronize()
    memory = owner.device.memory_info()
    return memory.total_bytes - memory.free_bytes


def _median(bytes_each: Sequence[int]) -> Measured:
    """Of the further instances; the first one also pays for what all share."""
    median = round(statistics.median(bytes_each[1:]))
    if median < 0:
        return NotMeasured(reason="device memory grew free meanwhile: other work runs on the device")
    return median
