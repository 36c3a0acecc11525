"""Imports go down only, in no cycle, and nothing about a GPU is imported before it is needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

import cudagraph_gate

PACKAGE: Final = "cudagraph_gate"
ROOT: Final = Path(cudagraph_gate.__file__).parent

LAYERS: Final[Mapping[str, int]] = {
    "__main__": 9,
    "cli": 8,
    "pipeline": 7,
    "report": 7,
    "pilot": 6,
    "gates": 6,
    "diagnosis": 6,
    "graphs": 5,
    "adapters": 5,
    "timeline": 5,
    "device": 4,
    "workload": 3,
    "fingerprint": 3,
    "evidence": 3,
    "stats": 2,
    "model": 1,
    "errors": 1,
    "records": 1,
    "__init__": 0,
}
"""First part of a module's name below the package to its layer; a new part must be placed here."""

LAZY: Final = frozenset({"cuda", "cupti", "torch", "cupy", "numba", "nvtx", "pynvml"})
"""Never imported at module level: every analysis of a file works where none of them is installed."""


@dataclass(frozen=True)
class Import:
    """One import statement's target, and when it is carried out."""

    target: str
    line: int
    eager: bool
    """When the module itself is imported, not only when a function is called or types are checked."""


def imports_of(source: str, module: str, *, is_package: bool) -> list[Import]:
    """Every import of a module, relative ones made absolute, ``from x import y`` as ``x.y``."""
    return list(_imports(ast.parse(source).body, module.split(".")[: None if is_package else -1], eager=True))


def _imports(body: list[ast.stmt], package: list[str], *, eager: bool) -> Iterator[Import]:
    for node in body:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, eager) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            yield from (Import(f"{origin}.{alias.name}", node.lineno, eager) for alias in node.names)
        else:
            deferred = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or _is_type_checking(node)
            for block in _blocks(node):
                yield from _imports(block, package, eager=eager and not deferred)


def _is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        yield getattr(node, name, [])
    for part in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
        yield part.body


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PATHS: Final = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}
IMPORTS: Final = {
    name: imports_of(path.read_text(encoding="utf-8"), name, is_package=path.name == "__init__.py")
    for name, path in PATHS.items()
}
every_module = pytest.mark.parametrize("module", list(PATHS))


def layer_of(module: str) -> int:
    """Raises KeyError for a part of the package that has no place yet."""
    part = module.split(".")[1] if "." in module else "__init__"
    return LAYERS[part]


def part_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


def own_imports(module: str) -> list[Import]:
    """Imports of other modules of the package; a name taken from a module is an import of that module."""
    resolved = (
        (found, next((name for name in (found.target, found.target.rpartition(".")[0]) if name in PATHS), ""))
        for found in IMPORTS[module]
    )
    return [Import(name, found.line, found.eager) for found, name in resolved if name and name != module]


# --- the rules ------------------------------------------------------------------------------------


@every_module
def test_every_module_has_a_layer(module: str) -> None:
    assert layer_of(module) >= 0


@every_module
def test_imports_go_down_or_stay_in_their_part(module: str) -> None:
    upwards = [
        f"{module}:{found.line} imports {found.target}"
        for found in own_imports(module)
        if layer_of(found.target) > layer_of(module) and part_of(found.target) != part_of(module)
    ]
    assert upwards == []


def test_no_module_imports_itself_by_any_way() -> None:
    eager = {name: {found.target for found in own_imports(name) if found.eager} for name in PATHS}
    assert cycle(eager) == []


def test_no_part_of_the_package_imports_itself_by_any_way() -> None:
    parts: dict[str, set[str]] = {part_of(name): set() for name in PATHS}
    for name in PATHS:
        parts[part_of(name)] |= {part_of(found.target) for found in own_imports(name)} - {part_of(name)}
    parts.pop(PACKAGE, None)
    assert cycle(parts) == []


@every_module
def test_gpu_libraries_are_imported_when_they_are_needed(module: str) -> None:
    early = [
        f"{module}:{found.line} imports {found.target}"
        for found in IMPORTS[module]
        if found.eager and found.target.split(".")[0] in LAZY
    ]
    assert early == []


def test_the_lower_layers_import_no_gpu_library() -> None:
    code = (
        "import sys, cudagraph_gate.fingerprint, cudagraph_gate.evidence, cudagraph_gate.device.port; "
        f"print(sorted({set(LAZY)!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- the rules' own tools -------------------------------------------------------------------------


def cycle(graph: Mapping[str, set[str]]) -> list[str]:
    """The names along one cycle of the graph; empty if there is none."""
    done: set[str] = set()

    def visit(name: str, trail: list[str]) -> list[str]:
        if name in trail:
            return trail[trail.index(name) :]
        if name in done:
            return []
        found = next((way for to in sorted(graph.get(name, ())) if (way := visit(to, [*trail, name]))), [])
        done.add(name)
        return found

    return next((found for name in sorted(graph) if (found := visit(name, []))), [])


def test_cycles_are_found() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]
    assert cycle({"a": {"a"}}) == ["a"]


SAMPLE = """\
from __future__ import annotations
import torch
from . import sibling
from ..device.port import Stream
if TYPE_CHECKING:
    import cupy
try:
    import numba
except ImportError:
    import numba.stub
class A:
    import nvtx
    def method(self):
        import cuda.bindings
"""


def test_imports_are_found_wherever_they_stand() -> None:
    found = imports_of(SAMPLE, "cudagraph_gate.graphs.update", is_package=False)
    eager = {item.target: item.line for item in found if item.eager}
    assert eager["torch"] == 2
    assert eager["cudagraph_gate.graphs.sibling"] == 3
    assert eager["cudagraph_gate.device.port.Stream"] == 4
    assert {"numba", "numba.stub", "nvtx"} <= eager.keys()
    assert {item.target for item in found if not item.eager} == {"cupy", "cuda.bindings"}


def test_relative_imports_of_a_package_start_at_itself() -> None:
    found = imports_of("from .port import Stream", "cudagraph_gate.device", is_package=True)
    assert found[0].target == "cudagraph_gate.device.port.Stream"
