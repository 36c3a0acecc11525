"""The artefacts beside the pilot log, each of which passes its gate: environment and diagnosis."""

from __future__ import annotations

from typing import Any

from cudagraph_gate.model import (
    Cause,
    DeviceIdle,
    Diagnosis,
    Distribution,
    Fingerprint,
    IdleInterval,
    Launches,
    Prediction,
    ProfileTimes,
    Requests,
)

MS = 1_000_000
KERNELS = {"gemm": 4, "softmax": 2, "add": 1, "copy": 1}


def fingerprint(*, simulated: bool = False, without: tuple[str, ...] = (), **change: Any) -> Fingerprint:
    """A complete environment."""
    software = {"python": "3.12", "cgate": "0.1.0", "workload_sha256": "ab" * 32, "shapes": ("b1=1x128",)}
    gpu = {
        "gpu_name": "NVIDIA H200",
        "gpu_uuid": "GPU-1",
        "compute_capability": "9.0",
        "driver_version": "580.95",
        "cuda_driver": "13.0",
    }
    identity = software if simulated else software | gpu
    identity = {name: value for name, value in identity.items() if name not in without}
    given = {"identity": identity, "conditions": {"gpu_clock_mhz": 1980}, "missing": {}}
    return Fingerprint(simulated=simulated, digest="d" * 64, **(given | change))


def distribution(p50_ns: int) -> Distribution:
    """A narrow distribution."""
    return Distribution(count=100, p50=p50_ns, p95=p50_ns, p99=p50_ns, minimum=p50_ns, maximum=p50_ns)


def prediction(**change: Any) -> Prediction:
    """Gain 40 %, from 38 % to 42 %."""
    given = {
        "normal_ns": 1 * MS,
        "replay_ns": 570_000,
        "replay_low_ns": 550_000,
        "replay_high_ns": 590_000,
        "copy_in_ns": 20_000,
        "request_ns": 600_000,
        "gain": 0.4,
        "upper_bound_ns": 450_000,
        "assumptions": (),
    }
    return Prediction(**(given | change))


def requests(**change: Any) -> Requests:
    """Stable requests that keep the GPU busy for 0.5 ms."""
    given = {
        "count": 20,
        "wall": distribution(1_100_000),
        "busy_ns": 500_000,
        "operations": 8,
        "submissions": 8,
        "blocking_calls": 1,
        "kernels": KERNELS,
        "stable": True,
        "unstable_share": 0.0,
        "submission_idle_ns": 450_000,
    }
    return Requests(**(given | change))


def device_idle(**change: Any) -> DeviceIdle:
    """A window of 20 ms: half busy, the rest idle for four causes."""
    causes = {
        Cause.HOST_WORK: 6 * MS,
        Cause.HOST_API: 2 * MS,
        Cause.LAUNCH_LATENCY: 1 * MS,
        Cause.SYNC: 1 * MS,
    }
    longest = IdleInterval(
        start_ns=3 * MS,
        duration_ns=MS // 2,
        cause=Cause.HOST_WORK,
        next_operation="gemm",
        host_call="cuLaunchKernel",
        range_name="step",
    )
    given = {
        "process": 1,
        "device": 0,
        "window_ns": 20 * MS,
        "busy_ns": 10 * MS,
        "sum_ns": 10 * MS,
        "compute_ns": 9 * MS,
        "copy_ns": 1 * MS,
        "idle_ns": 10 * MS,
        "causes": causes,
        "operations": 160,
        "streams": 1,
        "top_idle": (longest,),
    }
    return DeviceIdle(**(given | change))


def diagnosis(**change: Any) -> Diagnosis:
    """Measured idle, stable requests, a predicted gain of 40 %."""
    given = {
        "source": "cupti 13.0",
        "level": "full",
        "simulated": False,
        "resolution_ns": 1,
        "problems": (),
        "devices": (device_idle(),),
        "launches": Launches(
            submissions=160, graph_launches=0, submission_gap=distribution(40_000), tklqt_ns=MS
        ),
        "ranges": (),
        "requests": requests(),
        "prediction": prediction(),
        "conclusion": "The GPU waits for submission half of the time.",
    }
    return Diagnosis(**(given | change))


def profile(**change: Any) -> ProfileTimes:
    """Times without the recorder."""
    given = {
        "shape": "b1",
        "shape_value": "(1, 128)",
        "cold_ns": 90 * MS,
        "latency": distribution(1 * MS),
        "cpu_ns": 100_000,
        "recorded_latency": distribution(1_100_000),
        "copy_in_ns": 20_000,
        "input_bytes": {"tokens": 4096, "mask": 1 << 20},
        "iterations": 100,
    }
    return ProfileTimes(**(given | change))
