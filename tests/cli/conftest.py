"""One recorded run, made once, of which each test gets a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command import LONG_KERNELS, Recorded, cgate, write


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """By ``cgate run model.py --rungs 2 --json``; nobody writes to it."""
    folder = tmp_path_factory.mktemp("recorded")
    write(folder)
    return Recorded(folder, cgate(folder, "run", "model.py", "--rungs", "2", "--json"))


@pytest.fixture
def recorded(original: Recorded, tmp_path: Path) -> Recorded:
    """A copy of the original for one test."""
    return _copy(original, tmp_path)


@pytest.fixture(scope="session")
def original_profile(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """By ``cgate profile model.py --json``, with kernels that make trials short; nobody writes to it."""
    folder = tmp_path_factory.mktemp("profiled")
    write(folder, *LONG_KERNELS)
    return Recorded(folder, cgate(folder, "profile", "model.py", "--json"))


@pytest.fixture
def profiled(original_profile: Recorded, tmp_path: Path) -> Recorded:
    """A copy of the original profile for one test."""
    return _copy(original_profile, tmp_path)


def _copy(original: Recorded, place: Path) -> Recorded:
    shutil.copytree(original.folder, place / "copy")
    return Recorded(place / "copy", original.ended)
