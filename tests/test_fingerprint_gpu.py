"""The GPU's part of the fingerprint, the whole of it, and how two are compared."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from cudagraph_gate.fingerprint import Sources, collect, differences, digest
from cudagraph_gate.fingerprint.gpu import (
    GPU_CONDITIONS,
    GPU_FIELDS,
    driver_multiprocessors,
    first_visible,
    load_nvml,
    other_processes,
    read_gpu,
    throttle_names,
)
from cudagraph_gate.fingerprint.reading import Readings, UnreadableError
from cudagraph_gate.model import FieldValue, Fingerprint
from cudagraph_gate.workload import Workload, load_workload


class NvmlError(Exception):
    """NVML's error class, as pynvml has it."""


class NotSupportedError(NvmlError):
    """What NVML answers where a card lacks a feature."""


class Machine:
    """The NVML of a machine whose GPUs are given as (name, UUID); a handle is an index."""

    NVMLError = NvmlError
    NVMLError_NotSupported = NotSupportedError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, *gpus: tuple[str, str], unsupported: tuple[str, ...] = ()) -> None:
        self.gpus = gpus
        self.open = True
        for function in unsupported:
            setattr(self, function, self._refuse)

    @staticmethod
    def _refuse(*_args: Any) -> Any:
        raise NotSupportedError("Not Supported")

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open = False

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if not uuid.startswith("MIG-"):
            raise NvmlError("Not Found")
        return uuid

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: str) -> int:  # noqa: N802
        return int(handle[-1])

    def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: N802
        return self.gpus[handle][0]

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return self.gpus[handle][1]

    def __getattr__(self, function: str) -> Callable[..., Any]:
        answers: dict[str, Callable[..., Any]] = {
            "nvmlDeviceGetCount": lambda: len(self.gpus),
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetCudaComputeCapability": lambda _h: (9, 0),
            "nvmlDeviceGetMemoryInfo": lambda _h: SimpleNamespace(
                total=150_754_820_096, free=140_000_000_000
            ),
            "nvmlDeviceGetEccMode": lambda _h: [1, 1],
            "nvmlDeviceGetMigMode": lambda _h: [0, 0],
            "nvmlDeviceGetMPSComputeRunningProcesses": lambda _h: [],
            "nvmlDeviceGetPersistenceMode": lambda _h: 1,
            "nvmlDeviceGetPowerManagementLimit": lambda _h: 700_000,
            "nvmlSystemGetDriverVersion": lambda: "580.159.04",
            "nvmlSystemGetCudaDriverVersion_v2": lambda: 13000,
            "nvmlDeviceGetMaxClockInfo": lambda _h, kind: {1: 1980, 2: 3201}[kind],
            "nvmlDeviceGetClockInfo": lambda _h, kind: {1: 345, 2: 3201}[kind],
            "nvmlDeviceGetTemperature": lambda _h, _kind: 31,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _h: 0x5,
            "nvmlDeviceGetUtilizationRates": lambda _h: SimpleNamespace(gpu=7, memory=1),
            "nvmlDeviceGetComputeRunningProcesses": lambda _h: [SimpleNamespace(pid=os.getpid())],
        }
        return answers[function]


H200 = ("NVIDIA H200", "GPU-8e3a")
L4 = ("NVIDIA L4", "GPU-11bb")


def read_here(machine: Any, root: Path, environ: dict[str, str] | None = None) -> Readings:
    """The GPU part of a machine's fingerprint, opened as an H200."""
    return read_gpu(lambda: machine, lambda: 132, device_name="NVIDIA H200", root=root, environ=environ or {})


def refuse(reason: str) -> Callable[[], Any]:
    def load() -> Any:
        raise UnreadableError(reason)

    return load


# --- one GPU --------------------------------------------------------------------------------------


def test_a_gpu_is_read_whole(tmp_path: Path) -> None:
    machine = Machine(H200)
    readings = read_here(machine, tmp_path)
    assert readings.identity == {
        "gpu_name": "NVIDIA H200",
        "gpu_uuid": "GPU-8e3a",
        "gpu_count": 1,
        "compute_capability": "9.0",
        "multiprocessors": 132,
        "gpu_memory_bytes": 150_754_820_096,
        "ecc": "on",
        "mig_mode": "off",
        "mps": "off",
        "persistence": "on",
        "power_limit_w": 700,
        "driver_version": "580.159.04",
        "cuda_driver": "13.0",
        "max_sm_clock_mhz": 1980,
        "max_mem_clock_mhz": 3201,
    }
    assert readings.conditions == {
        "sm_clock_mhz": 345,
        "mem_clock_mhz": 3201,
        "temperature_c": 31,
        "throttle_reasons": ("gpu_idle", "sw_power_cap"),
        "free_memory_bytes": 140_000_000_000,
        "utilisation_percent": 7,
        "other_processes": 0,
    }
    assert readings.missing == {}
    assert not machine.open


def test_the_lists_of_fields_are_those_that_are_read(tmp_path: Path) -> None:
    readings = read_here(Machine(H200), tmp_path)
    assert (tuple(readings.identity), tuple(readings.conditions)) == (GPU_FIELDS, GPU_CONDITIONS)


def test_what_a_card_lacks_is_a_fact_and_what_it_does_not_tell_is_missing(tmp_path: Path) -> None:
    lacks = ("nvmlDeviceGetEccMode", "nvmlDeviceGetMigMode", "nvmlDeviceGetMPSComputeRunningProcesses")
    readings = read_here(Machine(H200, unsupported=(*lacks, "nvmlDeviceGetPowerManagementLimit")), tmp_path)
    assert [readings.identity[name] for name in ("ecc", "mig_mode", "mps")] == [
        "unsupported",
        "unsupported",
        "off",
    ]
    assert readings.missing == {"power_limit_w": "Not Supported"}


def test_without_nvml_every_field_is_missing_for_its_reason(tmp_path: Path) -> None:
    readings = read_gpu(refuse("NVML: not found"), lambda: 1, device_name="", root=tmp_path, environ={})
    assert readings == Readings(missing=dict.fromkeys((*GPU_FIELDS, *GPU_CONDITIONS), "NVML: not found"))


def test_without_the_driver_only_its_field_is_missing(tmp_path: Path) -> None:
    machine = Machine(H200)
    readings = read_gpu(
        lambda: machine, refuse("CUDA driver: none"), device_name="NVIDIA H200", root=tmp_path, environ={}
    )
    assert readings.missing == {"multiprocessors": "CUDA driver: none"}


def test_mps_is_active_while_its_pipes_exist(tmp_path: Path) -> None:
    (tmp_path / "tmp/nvidia-mps").mkdir(parents=True)
    assert read_here(Machine(H200), tmp_path).identity["mps"] == "off"
    (tmp_path / "tmp/nvidia-mps/control").touch()
    assert read_here(Machine(H200), tmp_path).identity["mps"] == "active"
    elsewhere = {"CUDA_MPS_PIPE_DIRECTORY": "/run/mps"}
    assert read_here(Machine(H200), tmp_path, elsewhere).identity["mps"] == "off"


def test_mps_is_active_while_a_process_computes_through_it(tmp_path: Path) -> None:
    machine: Any = Machine(H200)
    machine.nvmlDeviceGetMPSComputeRunningProcesses = lambda _handle: [SimpleNamespace(pid=1)]
    assert read_here(machine, tmp_path).identity["mps"] == "active"


def test_throttle_reasons_that_are_not_known_keep_their_bit() -> None:
    assert throttle_names(0) == ()
    assert throttle_names(0x8 | 0x40 | 0x400) == ("hw_slowdown", "hw_thermal_slowdown", "bit_10")


def test_this_process_is_not_another() -> None:
    processes = [SimpleNamespace(pid=os.getpid()), SimpleNamespace(pid=-1), SimpleNamespace(pid=-2)]
    assert other_processes(processes) == 2


# --- which GPU ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "device_name", "index"),
    [
        ({}, "NVIDIA L4", 0),
        ({}, "NVIDIA H200", 1),
        ({}, "unheard of", 0),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "NVIDIA H200", 0),
        ({"CUDA_VISIBLE_DEVICES": "2,0"}, "NVIDIA H200", 2),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8e3a"}, "", 1),
        ({"CUDA_VISIBLE_DEVICES": " GPU-9f , GPU-8e"}, "", 2),
        ({"CUDA_VISIBLE_DEVICES": "MIG-2"}, "", 2),
    ],
)
def test_the_device_is_the_one_that_cuda_sees_first(
    environ: dict[str, str], device_name: str, index: int
) -> None:
    machine = Machine(L4, H200, ("NVIDIA H200", "GPU-9f00"))
    assert first_visible(machine, environ, device_name) == index


@pytest.mark.parametrize("visible", ["", "-1", "7", "GPU-00", "NoDevFiles"])
def test_a_machine_whose_gpus_are_hidden_has_none(tmp_path: Path, visible: str) -> None:
    readings = read_here(Machine(H200), tmp_path, {"CUDA_VISIBLE_DEVICES": visible})
    assert readings.missing["gpu_name"] == f"CUDA_VISIBLE_DEVICES={visible} shows no GPU"
    assert readings.identity == {}


def test_a_machine_without_a_gpu_has_none(tmp_path: Path) -> None:
    machine = Machine()
    assert read_here(machine, tmp_path).missing["gpu_uuid"] == "NVML: no GPU"
    assert not machine.open


def test_an_error_while_looking_is_the_reason(tmp_path: Path) -> None:
    machine: Any = Machine(H200, unsupported=("nvmlDeviceGetCount",))
    assert read_here(machine, tmp_path).missing["gpu_uuid"] == "NVML: Not Supported"


def test_the_real_libraries_answer_or_give_a_reason() -> None:
    for reader, prefix in ((load_nvml, "NVML"), (driver_multiprocessors, "CUDA driver: ")):
        try:
            assert reader()
        except UnreadableError as error:
            assert str(error).startswith(prefix)


# --- the whole ------------------------------------------------------------------------------------


@pytest.fixture
def workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workload:
    monkeypatch.setattr(sys, "path", list(sys.path))  # loading a workload adds its folder
    path = tmp_path / "w.py"
    path.write_text("def build(shape): ...\ndef inputs(shape, seed): ...\n")
    return load_workload(path)


def sources(tmp_path: Path, **environ: str) -> Sources:
    maps = tmp_path / "proc/self/maps"
    maps.parent.mkdir(parents=True, exist_ok=True)
    maps.write_text("7f02-7f03 r--p 00000000 08:01 5 /usr/lib/libc.so.6\n")
    return Sources(root=tmp_path, environ=environ, nvml=lambda: Machine(H200), multiprocessors=lambda: 132)


def test_a_gpus_fingerprint_holds_everything(tmp_path: Path, workload: Workload) -> None:
    found = collect(
        simulated=False,
        device_name="NVIDIA H200",
        workload=workload.path,
        shapes=("b1", "b8"),
        input_digests={"b1": "ab12"},
        sources=sources(tmp_path, CUDA_VISIBLE_DEVICES="0"),
    )
    expected: dict[str, FieldValue] = {
        "device": "NVIDIA H200",
        "gpu_uuid": "GPU-8e3a",
        "shapes": ("b1", "b8"),
        "input_digest.b1": "ab12",
        "workload_sha256": workload.sha256,
        "env.CUDA_VISIBLE_DEVICES": "0",
        "python": platform.python_version(),
    }
    assert {name: found.identity[name] for name in expected} == expected
    assert found.missing["cupti"] == "not loaded in this process"
    assert "git_commit" in found.identity.keys() | found.missing.keys()
    assert found.conditions["sm_clock_mhz"] == 345


def test_the_simulated_device_has_no_gpu_to_miss() -> None:
    found = collect(simulated=True, device_name="anything")
    assert found.simulated
    assert found.identity["device"] == "simulated device"
    assert {name: why for name, why in found.missing.items() if "gpu" in name} == {"gpu": "simulated device"}
    assert not {"cuda_runtime", "gpu_name", "cuda_driver"} & (found.identity.keys() | found.missing.keys())


def test_a_memory_map_that_can_not_be_read_is_missing(tmp_path: Path) -> None:
    given = sources(tmp_path)
    (tmp_path / "proc/self/maps").unlink()
    found = collect(simulated=False, device_name="NVIDIA H200", sources=given)
    assert "proc/self/maps" in found.missing["cuda_runtime"]


def test_collecting_is_quick_and_imports_no_framework() -> None:
    before = set(sys.modules)
    started = time.monotonic()
    collect(simulated=False, device_name="")
    assert time.monotonic() - started < 1
    assert not {"torch", "cupy", "numba", "cupti"} & (set(sys.modules) - before)


def test_it_survives_a_round_trip_through_json(tmp_path: Path, workload: Workload) -> None:
    given = sources(tmp_path)
    found = collect(simulated=False, device_name="d", workload=workload.path, shapes=("b1",), sources=given)
    again = msgspec.json.decode(msgspec.json.encode(found), type=Fingerprint)
    assert again == found
    assert digest(again.identity) == found.digest
    assert differences(again, found) == ()


def test_the_digest_is_of_the_identity_alone_in_any_order() -> None:
    # printf '{"a":1,"b":["x"]}' | sha256sum
    expected = "fd5e92badbe24726f55b88132dd5fa1ceec0efd960b3bcd44f527b4bcc84af34"
    assert digest({"b": ("x",), "a": 1}) == digest({"a": 1, "b": ("x",)}) == expected


# --- comparing ------------------------------------------------------------------------------------


def known(conditions: dict[str, FieldValue] | None = None, **identity: FieldValue) -> Fingerprint:
    return Fingerprint(
        simulated=False, digest=digest(identity), identity=identity, conditions=conditions or {}, missing={}
    )


def test_fields_that_differ_or_are_on_one_side_only_are_named() -> None:
    recorded = known(torch="2.11", python="3.12.3", ecc="on")
    here = known(torch="2.12", python="3.12.3", jax="0.9")
    assert differences(recorded, here) == ("ecc", "jax", "torch") == differences(here, recorded)


def test_conditions_are_not_compared() -> None:
    assert differences(known({"temperature_c": 31}, a=1), known({"temperature_c": 80}, a=1)) == ()


def test_a_library_that_only_one_process_loaded_is_not_a_difference() -> None:
    assert differences(known(cudnn="9.10.2", cuda_runtime="13.0"), known()) == ()
    assert differences(known(cudnn="9.10.2"), known(cudnn="9.11.0")) == ("cudnn",)
