"""Loading a workload module from its file."""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from cudagraph_gate.errors import DeviceError, WorkloadError
from cudagraph_gate.workload.calls import error_text, user_error
from cudagraph_gate.workload.contract import Workload, location, workload_of


def load_workload(path: Path) -> Workload:
    """Import the workload file and check the contract.

    The file's folder comes first on ``sys.path``, so that it can import its neighbours. Raises
    WorkloadError with file and line when the file can't be imported or breaks the contract.
    """
    source, tree = _parse(path)
    absolute = path.resolve()
    sha256 = hashlib.sha256(source).hexdigest()
    module = _import(source, absolute, sha256)
    return workload_of(module, absolute, sha256, dict(_definitions(tree.body)))


def is_module_workload(path: Path) -> bool:
    """Whether the file defines ``build`` at its top level; nothing of it is run.

    Without ``build`` a file is a script that can only be profiled. Raises WorkloadError when it can't be
    read or parsed.
    """
    _source, tree = _parse(path)
    return any(name == "build" for name, _line in _definitions(tree.body))


def _parse(path: Path) -> tuple[bytes, ast.Module]:
    source = _read(path)
    try:
        return source, ast.parse(source, filename=str(path))
    except SyntaxError as error:
        where = location(path, error.lineno)
        raise WorkloadError(error_text(error), where=where, hint="correct the syntax") from error
    except ValueError as error:  # null bytes, before Python 3.12
        raise WorkloadError(error_text(error), where=path.name, hint="name a Python file") from error


def _read(path: Path) -> bytes:
    if path.is_dir():
        raise WorkloadError("is a folder", where=str(path), hint="name the workload file in it")
    if not path.exists():
        raise WorkloadError("no such file", where=str(path), hint=_nearest_file(path))
    if path.suffix != ".py":
        raise WorkloadError("is not a .py file", where=str(path), hint="name a Python file")
    try:
        return path.read_bytes()
    except OSError as error:
        what = f"can't be read ({error.strerror})"
        raise WorkloadError(what, where=str(path), hint="check its permissions") from error


def _nearest_file(path: Path) -> str:
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    names = sorted(neighbour.name for neighbour in path.parent.glob("*.py"))
    near = difflib.get_close_matches(path.name, names, n=1)
    return f"did you mean {path.parent / near[0]}?" if near else "name a Python file"


def _import(source: bytes, path: Path, sha256: str) -> ModuleType:
    """Run exactly the bytes that were hashed: a cached .pyc could be older than the file."""
    place = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    name = f"cgate_workload_{re.sub(r'[^0-9A-Za-z_]', '_', path.stem)}_{place}_{sha256[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "a .py file always has a loader"
    module = importlib.util.module_from_spec(spec)
    folder = str(path.parent)
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
    sys.modules[name] = module  # dataclasses and pickle look the module up by its name
    try:
        exec(compile(source, str(path), "exec", dont_inherit=True), vars(module))
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, DeviceError) or not isinstance(error, Exception | SystemExit):
            raise
        raise _import_error(error, path) from error
    return module


def _import_error(error: BaseException, path: Path) -> WorkloadError:
    failed = user_error(error, path.parent, "importing it")
    hint = failed.hint
    if isinstance(error, ModuleNotFoundError) and error.name:
        hint = f"install {error.name.partition('.')[0]} here, or put it beside {path.name}"
    return WorkloadError(
        failed.what, where=failed.where or path.name, hint=hint or "run it with python to see more"
    )


def _definitions(body: list[ast.stmt]) -> Iterator[tuple[str, int]]:
    """Names that a module's top level defines, with their lines; ``if``, ``try`` and ``with`` are opened."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement.name, statement.lineno
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            for alias in statement.names:
                yield alias.asname or alias.name.partition(".")[0], statement.lineno
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                yield from (
                    (n.id, statement.lineno)
                    for n in ast.walk(target)
                    if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
                )
        else:
            yield from _nested_definitions(statement)


def _nested_definitions(statement: ast.stmt) -> Iterator[tuple[str, int]]:
    for block in ("body", "orelse", "finalbody"):
        yield from _definitions(getattr(statement, block, []))
    for handler in getattr(statement, "handlers", []):
        yield from _definitions(handler.body)
