"""The host's part of the fingerprint, read from machines that are made of files below ``tmp_path``."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from cudagraph_gate.fingerprint import framework_mismatch
from cudagraph_gate.fingerprint.machine import (
    container,
    cpu_count,
    cpu_model,
    initial_environment,
    read_git,
    read_machine,
    variables,
)
from cudagraph_gate.fingerprint.reading import Readings, UnreadableError, read
from cudagraph_gate.fingerprint.software import (
    cuda_version,
    cudnn_version,
    library_version,
    mapped_libraries,
    read_libraries,
    read_packages,
)


def lay(root: Path, files: dict[str, str]) -> Path:
    """Write files below a root folder."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MACHINE = {
    "proc/sys/kernel/osrelease": "6.8.0-71-generic\n",
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: Xeon 8480C\nprocessor\t: 1\nmodel name\t: other\n",
    "proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-3,8,10-11\n",
    "proc/self/cgroup": "0::/user.slice\n",
    "proc/self/maps": "7f00-7f01 r-xp 00000000 00:00 0\n7f02-7f03 r--p 00000000 08:01 5 /usr/lib/libc.so.6\n",
    "proc/loadavg": "1.25 0.9 0.8 2/300 4242\n",
    "sys/devices/system/node/node0/cpulist": "0-7",
    "sys/devices/system/node/node1/cpulist": "8-15",
    "sys/devices/system/node/possible": "0-1",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return lay(tmp_path / "root", MACHINE)


# --- reading --------------------------------------------------------------------------------------


def test_each_field_fails_on_its_own() -> None:
    def broken() -> str:
        raise UnreadableError("no\nsuch thing")

    def unfinished() -> str:
        raise FileNotFoundError(2, "No such file or directory", "/proc/x")

    readings = read({"a": lambda: 1, "b": broken}, {"c": unfinished})
    assert readings == Readings(
        {"a": 1}, {}, {"b": "no such thing", "c": "/proc/x: No such file or directory"}
    )


def test_a_programming_error_is_not_a_missing_field() -> None:
    with pytest.raises(ZeroDivisionError):
        read({"a": lambda: 1 // 0})


# --- machine --------------------------------------------------------------------------------------


def test_the_machine_is_read_from_proc_and_sys(root: Path) -> None:
    assert read_machine(root, {"OMP_NUM_THREADS": "4"}) == Readings(
        {
            "kernel": "6.8.0-71-generic",
            "cpu_model": "Xeon 8480C",
            "cpu_count": 7,
            "numa_nodes": 2,
            "container": "none",
            "env.OMP_NUM_THREADS": "4",
        },
        {"load_average": 1.25},
        {},
    )


def test_what_a_machine_does_not_tell_is_missing_with_its_path(tmp_path: Path) -> None:
    missing = read_machine(tmp_path, {}).missing
    assert set(missing) == {"kernel", "cpu_model", "cpu_count", "numa_nodes", "load_average"}
    assert missing["kernel"] == f"{tmp_path}/proc/sys/kernel/osrelease: No such file or directory"
    assert missing["numa_nodes"] == "no nodes in /sys/devices/system/node"


def test_an_arm_cpu_is_named_by_its_part(tmp_path: Path) -> None:
    lay(tmp_path, {"proc/cpuinfo": "processor : 0\nCPU implementer : 0x41\nCPU part : 0xd4f\n"})
    assert cpu_model(tmp_path) == "Arm implementer 0x41 part 0xd4f"


def test_a_cpu_without_any_name_is_missing(tmp_path: Path) -> None:
    lay(tmp_path, {"proc/cpuinfo": "processor : 0\n", "proc/self/status": "Name: x\n"})
    with pytest.raises(UnreadableError, match="no model name"):
        cpu_model(tmp_path)
    with pytest.raises(UnreadableError, match="no Cpus_allowed_list"):
        cpu_count(tmp_path)


@pytest.mark.parametrize(
    ("files", "environ", "found"),
    [
        ({}, {}, "none"),
        ({".dockerenv": ""}, {}, "docker"),
        ({"run/.containerenv": ""}, {}, "podman"),
        ({"proc/1/cgroup": "12:cpu:/docker/3f2a\n"}, {}, "docker"),
        ({"proc/self/cgroup": "0::/machine.slice/libpod-3f.scope\n"}, {}, "podman"),
        ({"proc/1/cgroup": "0::/kubepods/burstable/pod1\n", ".dockerenv": ""}, {}, "kubernetes"),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({}, {"container": "lxc"}, "lxc"),
    ],
)
def test_containers_are_told_apart(
    tmp_path: Path, files: dict[str, str], environ: dict[str, str], found: str
) -> None:
    assert container(lay(tmp_path, files), environ) == found


def test_only_variables_that_change_gpu_work_are_recorded() -> None:
    environ = {"HOME": "/root", "SECRET_TOKEN": "x", "NCCL_ALGO": "Ring", "CUDA_LAUNCH_BLOCKING": "1"}
    assert variables(environ) == {"env.CUDA_LAUNCH_BLOCKING": "1", "env.NCCL_ALGO": "Ring"}


# --- version control ------------------------------------------------------------------------------


def git(folder: Path, *args: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    command = ["git", "-C", str(folder), *identity, *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@needs_git
def test_commit_and_changes_of_tracked_files(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    lay(tmp_path, {"w.py": "x = 1\n"})
    git(tmp_path, "add", "w.py")
    git(tmp_path, "commit", "-qm", "one")
    commit, tree = git(tmp_path, "rev-parse", "HEAD"), git(tmp_path, "rev-parse", "HEAD:./")
    lay(tmp_path, {".cgate/runs/r/run.json": "{}"})
    clean = Readings({"git_folder": tree, "git_dirty": False}, {"git_commit": commit})
    assert read_git(tmp_path) == clean
    lay(tmp_path, {"w.py": "x = 2\n"})
    assert read_git(tmp_path).identity["git_dirty"] is True


@needs_git
def test_a_commit_elsewhere_leaves_a_folders_identity_alone(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    for folder in ("mine", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "w.py").write_text("x = 1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    before = read_git(tmp_path / "mine")
    (tmp_path / "other" / "w.py").write_text("x = 2")
    git(tmp_path, "commit", "-qam", "two")
    after = read_git(tmp_path / "mine")
    assert after.identity == before.identity
    assert after.conditions["git_commit"] != before.conditions["git_commit"]


@needs_git
def test_a_folder_outside_any_repository_is_missing(tmp_path: Path) -> None:
    missing = read_git(tmp_path).missing
    assert missing["git_commit"].startswith("fatal: not a git repository")


def test_without_git_the_reason_is_that(tmp_path: Path) -> None:
    reason = "no-such-git is not installed"
    assert read_git(tmp_path, program="no-such-git").missing == dict.fromkeys(
        ("git_folder", "git_dirty", "git_commit"), reason
    )


def test_a_git_that_hangs_or_fails_is_missing(tmp_path: Path) -> None:
    for name, body in (("slow", "exec sleep 30"), ("failing", "exit 3")):
        script = tmp_path / name
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o755)
    slow = read_git(tmp_path, program=f"{tmp_path}/slow", timeout_s=0.05)
    assert slow.missing["git_commit"] == f"{tmp_path}/slow took longer than 0.05 s"
    failing = read_git(tmp_path, program=f"{tmp_path}/failing")
    assert failing.missing["git_dirty"] == f"{tmp_path}/failing ended with 3"


# --- packages and libraries -----------------------------------------------------------------------


def install(site: Path, name: str, version: str, files: dict[str, str] | None = None) -> list[str]:
    """Lay out an installed package; returns the search path that holds it."""
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    lay(site, {f"{name.replace('-', '_')}-{version}.dist-info/METADATA": metadata, **(files or {})})
    return [str(site)]


def test_installed_packages_are_read_without_importing_them(tmp_path: Path) -> None:
    install(tmp_path, "torch", "2.11.0+cu130")
    path = install(tmp_path, "cupy-cuda13x", "13.6.0")
    assert read_packages(path) == Readings({"cupy-cuda13x": "13.6.0", "torch": "2.11.0+cu130"})


def test_libraries_that_are_not_loaded(root: Path) -> None:
    reason = "not loaded in this process"
    assert read_libraries(root, {}) == Readings(missing={"cuda_runtime": reason, "cupti": reason})


def test_torch_tells_the_runtime_where_no_library_does(root: Path) -> None:
    torch = SimpleNamespace(version=SimpleNamespace(cuda="13.0"))
    assert read_libraries(root, {"torch": torch}).identity == {"cuda_runtime": "13.0"}
    cpu_only = SimpleNamespace(version=SimpleNamespace(cuda=None))
    assert "cuda_runtime" in read_libraries(root, {"torch": cpu_only}).missing


def test_mapped_libraries_are_read_from_the_memory_map(root: Path) -> None:
    line = "7f04-7f05 r-xp 00000000 08:01 9 /opt/my libs/libcudnn.so.9.10.2\n"
    lay(root, {"proc/self/maps": MACHINE["proc/self/maps"] + line * 2})
    assert mapped_libraries(root) == ("/opt/my libs/libcudnn.so.9.10.2", "/usr/lib/libc.so.6")
    assert read_libraries(root, {}).identity == {"cudnn": "9.10.2"}


def test_two_copies_of_a_library_are_both_told() -> None:
    paths = ("/a/libcublas.so.12", "/b/libcublas.so.13", "/b/libcublasLt.so.13", "/c/libnvblas.so.13")
    assert library_version("cublas", paths) == "12, 13"


def test_a_file_name_without_version_is_missing() -> None:
    with pytest.raises(UnreadableError, match=r"^/a/libcublas\.so does not tell its version$"):
        library_version("cublas", ("/a/libcublas.so",))


COMPILED = """
int cudaRuntimeGetVersion(int *v) { *v = 13020; return 0; }
unsigned long cudnnGetVersion(void) { return 91002; }
int cublasGetProperty(int which, int *v) { *v = which == 0 ? 13 : which; return 0; }
int cuptiGetVersion(unsigned *v) { *v = 130000; return 0; }
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize(
    ("name", "version"), [("cudart", "13.2"), ("cudnn", "9.10.2"), ("cublas", "13.1.2"), ("cupti", "130000")]
)
def test_a_mapped_library_is_asked_for_its_version(tmp_path: Path, name: str, version: str) -> None:
    library = tmp_path / f"lib{name}.so.13"
    lay(tmp_path, {"l.c": COMPILED})
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "l.c")], check=True)
    assert library_version(name, (str(library),)) == version


@pytest.mark.parametrize(("number", "text"), [(13000, "13.0"), (12080, "12.8"), (13020, "13.2")])
def test_cuda_versions(number: int, text: str) -> None:
    assert cuda_version(number) == text


@pytest.mark.parametrize(("number", "text"), [(91002, "9.10.2"), (90100, "9.1.0"), (8902, "8.9.2")])
def test_cudnn_versions(number: int, text: str) -> None:
    assert cudnn_version(number) == text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("cuda: Optional[str] = '12.8'\n", True),
        ("from typing import Optional\n__version__ = '2.8.0'\ncuda = '12.8'\nhip = None\n", True),
        ("cuda: Optional[str] = '13.0'\n", False),
        ("cuda: Optional[str] = None\nxpu = '12.8'\n", False),
    ],
)
def test_torch_built_for_another_cuda_is_told(tmp_path: Path, text: str, line: bool) -> None:
    install(tmp_path, "cupti-python", "13.0.1")
    path = install(tmp_path, "torch", "2.8.0", {"torch/version.py": text})
    expected = (
        "torch 2.8.0 is built for CUDA 12.8, but cupti-python 13.0.1 records CUDA 13: "
        "install the matching CUPTI with: pip install 'cupti-python~=12.8'"
    )
    assert framework_mismatch(path) == (expected if line else None)


def test_cupy_tells_its_cuda_by_its_name(tmp_path: Path) -> None:
    install(tmp_path, "cupti-python", "13.0.1")
    install(tmp_path, "cupy-cuda13x", "13.6.0")
    assert framework_mismatch([str(tmp_path)]) is None
    install(tmp_path / "old", "cupti-python", "13.0.1")
    line = framework_mismatch(install(tmp_path / "old", "cupy-cuda12x", "13.6.0"))
    assert line is not None
    assert line.startswith("cupy-cuda12x is built for CUDA 12, but cupti-python 13.0.1 records CUDA 13: ")
    assert line.endswith("pip install 'cupti-python~=12.8'")


def test_nothing_to_compare_is_no_mismatch(tmp_path: Path) -> None:
    assert framework_mismatch([str(tmp_path)]) is None
    path = install(tmp_path, "cupti-python", "13.0.1")
    assert framework_mismatch(path) is None
    install(tmp_path, "torch", "2.8.0")  # without the file that tells
    assert framework_mismatch(path) is None


def test_variables_that_were_set_after_the_start_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "environ").write_bytes(b"CUDA_VISIBLE_DEVICES=0\0A=b=c\0broken\0")
    assert initial_environment(tmp_path) == {"CUDA_VISIBLE_DEVICES": "0", "A": "b=c"}


def test_without_a_readable_start_the_environment_of_now_counts(tmp_path: Path) -> None:
    assert initial_environment(tmp_path) == dict(os.environ)
