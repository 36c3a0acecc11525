"""The user's own files that a workload imports: what they hold is part of the workload."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path


def neighbours(workload: Path) -> tuple[Path, ...]:
    """Python files of the workload's folder that it imports, itself or through others; nothing is run."""
    folder = workload.resolve().parent
    found: dict[Path, None] = {}
    waiting = [workload.resolve()]
    while waiting:
        for file in _imported(waiting.pop(), folder):
            if file not in found and file != workload.resolve():
                found[file] = None
                waiting.append(file)
    return tuple(sorted(found))


def digest_of_neighbours(workload: Path) -> str:
    """SHA-256 of names and contents of all :func:`neighbours`; empty where there are none."""
    files = neighbours(workload)
    folder = workload.resolve().parent
    whole = hashlib.sha256()
    for file in files:
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        whole.update(f"{file.relative_to(folder).as_posix()} {content}\n".encode())
    return whole.hexdigest() if files else ""


def _imported(file: Path, folder: Path) -> Iterator[Path]:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):  # loading the workload says so better
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(folder, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            base = folder if node.level == 0 else file.parents[min(node.level, len(file.parents)) - 1]
            parts = node.module.split(".") if node.module else []
            for alias in node.names:
                yield from (each for each in _files(base, [*parts, alias.name]) if folder in each.parents)


def _files(base: Path, parts: list[str]) -> Iterator[Path]:
    """The module ``parts`` and every package above it, as far as they are files below ``base``."""
    for count in range(1, len(parts) + 1):
        place = base.joinpath(*parts[:count])
        for candidate in (place.with_suffix(".py"), place / "__init__.py"):
            if candidate.is_file():
                yield candidate
