"""One recorded run, made once, of which each test gets a copy."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from command import LONG_KERNELS, Ended, Recorded, cgate, write
from made_once import made_once

Factory = pytest.TempPathFactory


@pytest.fixture(scope="session")
def original(tmp_path_factory: Factory) -> Recorded:
    """By ``cgate run model.py --rungs 2 --json``; nobody writes to it."""
    return _made(tmp_path_factory, "recorded", ("run", "model.py", "--rungs", "2", "--json"))


@pytest.fixture
def recorded(original: Recorded, tmp_path: Path) -> Recorded:
    """A copy of the original for one test."""
    return _copy(original, tmp_path)


@pytest.fixture(scope="session")
def original_profile(tmp_path_factory: Factory) -> Recorded:
    """By ``cgate profile model.py --json``, with kernels that make trials short; nobody writes to it."""
    return _made(tmp_path_factory, "profiled", ("profile", "model.py", "--json"), *LONG_KERNELS)


@pytest.fixture
def profiled(original_profile: Recorded, tmp_path: Path) -> Recorded:
    """A copy of the original profile for one test."""
    return _copy(original_profile, tmp_path)


def _made(factory: Factory, name: str, arguments: tuple[str, ...], *change: str) -> Recorded:
    """What a command left of the workload, with one text of it changed."""

    def make(folder: Path) -> None:
        (folder / "work").mkdir()
        write(folder / "work", *change)
        ended = cgate(folder / "work", *arguments)
        (folder / "ended.json").write_text(json.dumps(asdict(ended)))

    folder = made_once(factory, name, make)
    return Recorded(folder / "work", Ended(**json.loads((folder / "ended.json").read_text())))


def _copy(original: Recorded, place: Path) -> Recorded:
    shutil.copytree(original.folder, place / "copy")
    return Recorded(place / "copy", original.ended)
