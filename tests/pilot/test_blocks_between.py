"""What lies around the requests of a timed block: where their inputs are, and the workload's between."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any, cast

import pytest
from opened_sessions import opened

from cudagraph_gate.device.simulated import SimulatedDevice
from cudagraph_gate.errors import WorkloadError
from cudagraph_gate.pilot.measure import (
    BLOCK_REQUESTS,
    CALIBRATION,
    BetweenBlocks,
    Request,
    blocks,
    normal_request,
)
from cudagraph_gate.pilot.session import Inputs
from cudagraph_gate.records import PathName

OWN: tuple[PathName, ...] = ("normal", "graph")


# --- where the inputs of a block lie ------------------------------------------------------------------


class Served:
    """A workload whose two paths note the input of each request that they serve."""

    def __init__(self, folder: Path, text: str = "", **how: Any) -> None:
        self.opened = opened(folder, text)
        self.session = self.opened.session
        self.sets = self.session.input_sets(1)
        self.pointers: dict[PathName, list[list[int]]] = {"normal": [], "graph": []}
        self.calibrating = dict.fromkeys(self.pointers, CALIBRATION)
        requests: dict[PathName, Request] = {path: self.request(path) for path in self.pointers}
        self.blocks = list(blocks(self.session, requests, self.sets, 3, after_block=self.ended, **how))

    def request(self, path: PathName) -> Request:
        """One of the two paths; one block ends where the next begins."""
        step, self.now = normal_request(self.session), list[int]()

        def request(inputs: Inputs) -> None:
            self.now.append(inputs[0].pointer)
            cast("SimulatedDevice", self.session.device).host_work(2_000_000)
            step(inputs)

        return request

    def ended(self, path: PathName, order: int) -> None:
        """A block ended: what was served before the first one was calibration."""
        served = self.now[2 * CALIBRATION :] if order == 0 else self.now[:]
        self.pointers[path].append(served)
        self.now.clear()


def test_a_graph_of_ours_is_timed_on_the_same_inputs_in_every_block(tmp_path: Path) -> None:
    served = Served(tmp_path)
    rotation = [inputs[0].pointer for inputs in served.sets]
    for path in OWN:
        for block in served.pointers[path]:
            first, *others = block
            assert first == rotation[0]
            assert others == [rotation[at % len(rotation)] for at in range(len(others))]


def test_for_an_own_path_every_request_of_both_has_an_address_of_its_own(tmp_path: Path) -> None:
    served = Served(tmp_path, method="own")
    found = [pointer for path in OWN for block in served.pointers[path] for pointer in block]
    requests = sum(len(block.latencies_ns) + 1 for block in served.blocks)
    assert len(found) == len(set(found)) == requests
    assert {pointer for (inputs,) in served.sets for pointer in [inputs.pointer]}.isdisjoint(found)


# --- between requests -----------------------------------------------------------------------------

SEEN = """
        SEEN = []
        def between(i):
            device.host_work(70_000_000)
            SEEN.append(i)
        """


def test_both_paths_of_a_round_see_the_same_indices_which_count_on(tmp_path: Path) -> None:
    path = opened(tmp_path, SEEN)
    session, seen = path.session, path.session.workload.module.SEEN
    session.between(6)  # the trajectory's last one
    requests: dict[PathName, Request] = {"normal": normal_request(session), "graph": normal_request(session)}
    by_block: list[list[int]] = []
    for block in blocks(session, requests, session.input_sets(1), 3):
        by_block.append(seen[:])
        seen.clear()
        assert len(by_block[-1]) == len(block.latencies_ns) + (2 if block.order == 0 else 0)
    by_block[0] = by_block[0][2:]  # the trajectory's, and one that said what a call costs
    assert all(by_block[at] == by_block[at + 1] for at in range(0, len(by_block), 2))
    assert [index for block in by_block[::2] for index in block] == list(range(8, session.next_index))


def test_its_time_is_in_no_request_and_it_comes_before_the_cache_is_flushed(tmp_path: Path) -> None:
    path = opened(tmp_path, SEEN)
    session = path.session
    requests: dict[PathName, Request] = {"normal": normal_request(session)}
    found = list(islice(blocks(session, requests, session.input_sets(1), 3), 4))
    assert all(max(block.latencies_ns) < 1_000_000 for block in found)
    assert all(block.cpu_ns < 1_000_000 * len(block.latencies_ns) for block in found)


def test_with_it_all_paths_have_equally_many_requests_in_a_block(tmp_path: Path) -> None:
    session = opened(tmp_path, SEEN).session
    slow = cast("SimulatedDevice", session.device).host_work
    requests: dict[PathName, Request] = {
        "normal": lambda _inputs: slow(5_000_000),
        "graph": lambda _inputs: slow(1_000_000),
    }
    counts = {len(block.latencies_ns) for block in blocks(session, requests, session.input_sets(1), 3)}
    assert counts == {10}, "as many as the slower path's"


def test_a_slow_one_does_not_make_timing_longer_than_its_budget(tmp_path: Path) -> None:
    session = opened(tmp_path, "def between(i):\n    time.sleep(0.01)\n").session
    counts: dict[PathName, int] = {"normal": 50, "graph": 50}
    between = BetweenBlocks(session, counts, budget_s=1.0)
    assert set(counts.values()) == {BLOCK_REQUESTS[0]}, "100 calls are too few for 40 blocks"
    for order in range(2):
        pause = between.pause(order)
        assert pause is not None
        for _request in range(5):
            pause()
    assert session.next_index == 1 + 2, "two a block, in both the same"


def test_its_failure_is_the_workloads(tmp_path: Path) -> None:
    path = opened(tmp_path, "def between(i):\n    1 / (i - 3)\n")
    requests: dict[PathName, Request] = {"graph": normal_request(path.session)}
    with pytest.raises(WorkloadError, match=r"between\(3\) raised ZeroDivisionError") as caught:
        list(blocks(path.session, requests, path.session.input_sets(1), 3))
    assert caught.value.where == path.place("1 / (i - 3)")
