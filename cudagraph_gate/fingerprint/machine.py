"""The host: kernel, CPU, container, environment variables, and the workload's version control."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cudagraph_gate.fingerprint.reading import Readings, UnreadableError, read
from cudagraph_gate.model import FieldValue

VARIABLES: Final = frozenset(
    {
        "CUBLAS_WORKSPACE_CONFIG",
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "CUDA_DEVICE_ORDER",
        "CUDA_FORCE_PTX_JIT",
        "CUDA_LAUNCH_BLOCKING",
        "CUDA_MODULE_LOADING",
        "CUDA_VISIBLE_DEVICES",
        "MKL_NUM_THREADS",
        "NVIDIA_TF32_OVERRIDE",
        "OMP_NUM_THREADS",
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_NO_CUDA_MEMORY_CACHING",
        "XLA_FLAGS",
    }
)
"""Variables that change how GPU work is submitted, allocated or computed. Nothing else is recorded."""
VARIABLE_PREFIXES: Final = ("CUDA_MPS_", "NCCL_", "NUMBA_CUDA_", "TORCHINDUCTOR_", "TORCH_NCCL_")

GIT_TIMEOUT_S: Final = 5.0
"""git answers in milliseconds; a repository on a network disk may take seconds, one that hangs must not."""


def read_machine(root: Path, environ: Mapping[str, str]) -> Readings:
    """Facts about the host, from the ``/proc`` and ``/sys`` below ``root``."""
    facts = read(
        {
            "kernel": lambda: _text(root / "proc/sys/kernel/osrelease"),
            "cpu_model": lambda: cpu_model(root),
            "cpu_count": lambda: cpu_count(root),
            "numa_nodes": lambda: numa_nodes(root),
            "container": lambda: container(root, environ),
        },
        {"load_average": lambda: float(_text(root / "proc/loadavg").split()[0])},
    )
    return facts + Readings(variables(environ))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").strip()


def cpu_model(root: Path) -> str:
    """The CPU's name; implementer and part number where an Arm kernel gives no name."""
    fields: dict[str, str] = {}
    for line in _text(root / "proc/cpuinfo").splitlines():
        name, _colon, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    if fields.get("model name"):
        return fields["model name"]
    if "CPU part" in fields:
        return f"Arm implementer {fields.get('CPU implementer', '?')} part {fields['CPU part']}"
    raise UnreadableError("no model name in /proc/cpuinfo")


def cpu_count(root: Path) -> int:
    """CPUs that this process may run on, not all of the machine: taskset and cpusets change the timing."""
    for line in _text(root / "proc/self/status").splitlines():
        if line.startswith("Cpus_allowed_list:"):
            return sum(_span(part) for part in line.partition(":")[2].split(","))
    raise UnreadableError("no Cpus_allowed_list in /proc/self/status")


def _span(part: str) -> int:
    """Length of ``3`` or ``0-15``."""
    first, _dash, last = part.strip().partition("-")
    return int(last or first) - int(first) + 1


def numa_nodes(root: Path) -> int:
    """NUMA nodes of the machine."""
    nodes = list((root / "sys/devices/system/node").glob("node[0-9]*"))
    if not nodes:
        raise UnreadableError("no nodes in /sys/devices/system/node")
    return len(nodes)


def container(root: Path, environ: Mapping[str, str]) -> str:
    """``kubernetes``, ``docker``, ``podman``, what the ``container`` variable says, or ``none``."""
    groups = "\n".join(_text(p) for p in _control_groups(root))
    if "KUBERNETES_SERVICE_HOST" in environ or "kubepods" in groups:
        return "kubernetes"
    if (root / "run/.containerenv").exists() or "libpod" in groups:
        return "podman"
    if (root / ".dockerenv").exists() or re.search(r"/docker[-/]", groups):
        return "docker"
    return environ.get("container") or "none"


def _control_groups(root: Path) -> list[Path]:
    return [path for pid in ("1", "self") if os.access(path := root / "proc" / pid / "cgroup", os.R_OK)]


def initial_environment(process: Path = Path("/proc/self")) -> dict[str, str]:
    """The variables that this process was started with; as they are now where that can't be read."""
    try:
        entries = (process / "environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return dict(os.environ)
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def variables(environ: Mapping[str, str]) -> dict[str, FieldValue]:
    """The allow-listed environment variables that are set, as ``env.NAME``."""
    return {
        f"env.{name}": value
        for name, value in sorted(environ.items())
        if name in VARIABLES or name.startswith(VARIABLE_PREFIXES)
    }


def read_git(folder: Path, *, program: str = "git", timeout_s: float = GIT_TIMEOUT_S) -> Readings:
    """State of ``folder`` in its repository: its tree at the commit, and whether its tracked files differ.

    The commit itself is recorded only: one that leaves the folder alone changes nothing for the workload.
    Untracked files do not count: the run folder itself is one.
    """

    def git(*args: str) -> str:
        return _git(program, folder, args, timeout_s)

    return read(
        {
            "git_folder": lambda: git("rev-parse", "HEAD:./"),
            "git_dirty": lambda: bool(git("status", "--porcelain", "--untracked-files=no", "--", ".")),
        },
        {"git_commit": lambda: git("rev-parse", "HEAD")},
    )


def _git(program: str, folder: Path, args: tuple[str, ...], timeout_s: float) -> str:
    # Without the caller's GIT_DIR and the like, which would answer for another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    command = [program, "-C", str(folder), *args]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, env=environment, check=False
        )
    except FileNotFoundError:
        raise UnreadableError(f"{program} is not installed") from None
    except subprocess.TimeoutExpired:
        raise UnreadableError(f"{program} took longer than {timeout_s:g} s") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise UnreadableError(lines[0] if lines else f"{program} ended with {done.returncode}")
    return done.stdout.strip()
