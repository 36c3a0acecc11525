"""Who else uses the GPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cudagraph_gate.device.simulated import SimulatedDevice
from cudagraph_gate.pilot.tenants import lineage, other_processes, strangers


def test_nobody_else_uses_the_simulated_device() -> None:
    assert other_processes(SimulatedDevice()) == 0


@pytest.mark.parametrize(
    ("listed", "others"),
    [
        ([], 0),
        ([30], 0),
        ([30, 20, 10], 0),  # this one and those that started it
        ([30, 40], 1),
        ([4711], 0),  # this one, by the host's id
        ([4711, 4712, 20], 1),
    ],
)
def test_strangers_are_told_from_this_process_and_its_parents(listed: list[int], others: int) -> None:
    assert strangers(listed, own=[30, 20, 10]) == others


def test_a_process_knows_who_started_it(tmp_path: Path) -> None:
    for pid, parent in ((30, 20), (20, 1), (1, 0)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a (strange) name) S {parent} 5 5 0")
    assert lineage(30, tmp_path) == [30, 20, 1]
    assert lineage(99, tmp_path) == [99]
    assert lineage(os.getpid())[:2] == [os.getpid(), os.getppid()]
