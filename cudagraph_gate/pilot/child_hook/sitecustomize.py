"""Found by every Python process that a recorded script starts: lets that process be recorded, too.

Python imports ``sitecustomize`` when it starts. The one that this file hides is run as well. Nothing else
happens until the process imports a library of ``CUDA_LIBRARIES``: one that never does pays for a look at
each import.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  (pathlib would slow every child down)
FOLDER_VARIABLE = "CGATE_CHILDREN_FOLDER"
ROOT_VARIABLE = "CGATE_CHILDREN_ROOT"
CUDA_LIBRARIES = frozenset(
    ("cuda", "cupy", "cupti", "jax", "numba", "nvtx", "pycuda", "tensorflow", "torch", "triton")
)


def _run_hidden() -> None:
    path = [folder for folder in sys.path if os.path.abspath(folder) != HERE]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def _follow(folder: str, root: str) -> None:
    state = {"waiting": True}

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "import" or not state["waiting"]:
            return
        if str(arguments[0]).partition(".")[0] not in CUDA_LIBRARIES:
            return
        state["waiting"] = False
        if root not in sys.path:
            sys.path.append(root)
        from cudagraph_gate.pilot.child_recording import record_this_process

        record_this_process(folder)

    sys.addaudithook(heard)


if os.environ.get(FOLDER_VARIABLE) and os.environ.get(ROOT_VARIABLE):
    _follow(os.environ[FOLDER_VARIABLE], os.environ[ROOT_VARIABLE])
_run_hidden()
