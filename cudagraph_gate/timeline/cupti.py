"""Recorder of a real GPU: CUPTI activity records of this process, decoded by NumPy.

At level ``full`` it also samples the CPU time of the threads that submit work, and notes the line of the
program that makes each blocking call. A light recording does neither: it does not know the submitting thread.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pandas as pd

from cudagraph_gate.errors import NoDeviceError
from cudagraph_gate.timeline.cpu_times import CpuSampler
from cudagraph_gate.timeline.cupti_buffers import collect
from cudagraph_gate.timeline.cupti_kinds import FULL_KINDS, LIGHT_KINDS, WANTED
from cudagraph_gate.timeline.cupti_library import Cupti, inject_nvtx, load_cupti, published_layouts
from cudagraph_gate.timeline.cupti_rows import Decoder
from cudagraph_gate.timeline.cupti_sites import CallSites, has_site
from cudagraph_gate.timeline.cupti_spool import BUFFER_BYTES, Names, Spool
from cudagraph_gate.timeline.recorder import Level
from cudagraph_gate.timeline.table import CPU_TIME_COLUMNS, Timeline, TimelineMeta, frame

CLOCK_DRIFT_NS: Final = 1_000_000
"""Largest change of the offset between CUPTI's clock and the host's during a recording: a fifth of a CPU time
sample. Beyond it the host's clock was set, and the samples can't be placed."""


class CuptiRecorder:
    """One recording at a time in a process. Create it before the first NVTX call of the process.

    ``folder`` takes the records while they come (the system's temporary folder if None). ``count_range``
    names the ranges that :attr:`ended_ranges` counts. ``cpu_times`` and ``call_sites`` switch off what level
    ``full`` adds on the host's side.
    """

    def __init__(
        self,
        level: Level,
        folder: Path | None = None,
        *,
        count_range: str = "",
        cpu_times: bool = True,
        call_sites: bool = True,
        buffer_bytes: int = BUFFER_BYTES,
        cupti: Cupti | None = None,
    ) -> None:
        if cupti is None:
            inject_nvtx()
        self._cupti = cupti or load_cupti()
        self._level = level
        self._kinds = FULL_KINDS if level == "full" else LIGHT_KINDS
        self._folder = folder
        self._count_range = count_range
        self._samples_cpu = cpu_times and level == "full"
        self._notes_sites = call_sites and level == "full"
        self._buffer_bytes = buffer_bytes
        self._problems: list[str] = []

    @property
    def recorded_bytes(self) -> int:
        """Bytes of the records that CUPTI has handed over."""
        return self._spool.recorded_bytes

    @property
    def ended_ranges(self) -> int:
        """Ranges of the counted name that have ended, among the records that CUPTI has handed over."""
        return self._names.ended

    def start(self) -> None:
        """Begin recording. Raises NoDeviceError with CUPTI's reason when it may not."""
        self._problems = []
        self._names = Names(published_layouts(), self._cupti.record_size)
        self._names.counted_range = self._count_range
        self._spool = Spool(self._names, self._folder, buffer_bytes=self._buffer_bytes)
        self._sites, self._sampler = CallSites(), CpuSampler()
        self._cupti.register(self._spool)
        if self._level == "full":
            self._cupti.number_threads_as_system()
        self._cupti.dropped()
        self._cupti.latency_timestamps(True)
        if self._notes_sites:
            self._subscribe()
        if self._samples_cpu:
            self._offset_ns = self._cupti.clock_offset_ns()
            self._sampler.start()
        for kind in self._kinds:
            self._cupti.enable(kind)

    def _subscribe(self) -> None:
        try:
            self._cupti.subscribe(self._sites.note, has_site)
        except NoDeviceError as error:
            self._problems.append(f"call sites are not recorded: {error.what}")

    def flush(self) -> None:
        """Make CUPTI hand over what is complete, so that :attr:`ended_ranges` is up to date."""
        self._cupti.flush(forced=False)
        self._spool.settle()

    def detach(self) -> None:
        """After the last :meth:`stop`, where the process then ends by itself and not by ``os._exit``."""
        self._cupti.detach()

    def stop(self) -> Timeline:
        """Collect and decode what was recorded."""
        for kind in self._kinds:
            self._cupti.enable(kind, on=False)
        self._cupti.flush()
        if self._samples_cpu:
            self._sampler.stop()
        self._cupti.unsubscribe()
        self._spool.miss()
        self._spool.settle()
        records, unread = collect(self._spool.buffers(), published_layouts(), WANTED, self._cupti.record_size)
        dropped = self._cupti.dropped() + self._spool.dropped
        self._spool.close()
        decoder = Decoder(
            records,
            process=os.getpid(),
            callback_name=self._cupti.callback_name,
            read_text=self._names.text,
            sites=self._sites.by_correlation,
        )
        cpu_times = self._cpu_times(decoder.calls) if self._samples_cpu else frame(CPU_TIME_COLUMNS)
        return Timeline(
            meta=TimelineMeta(
                source=f"CUPTI {self._cupti.version()}",
                level=self._level,
                dropped_records=dropped,
                problems=(*self._problems, *self._spool.problems, *unread, *decoder.problems),
            ),
            operations=decoder.operations,
            calls=decoder.calls,
            ranges=decoder.ranges,
            overheads=decoder.overheads,
            cpu_times=cpu_times,
        )

    def _cpu_times(self, calls: pd.DataFrame) -> pd.DataFrame:
        """CPU time of the threads that made a call, on CUPTI's clock."""
        if not self._cupti.threads_are_system():
            self._problems.append(
                "CPU times are not recorded: this CUPTI does not number threads as Linux does"
            )
            return frame(CPU_TIME_COLUMNS)
        offset_ns = self._cupti.clock_offset_ns()
        if abs(offset_ns - self._offset_ns) > CLOCK_DRIFT_NS:
            self._problems.append("CPU times are not recorded: the host's clock was set meanwhile")
            return frame(CPU_TIME_COLUMNS)
        return self._sampler.samples.table(
            process=os.getpid(),
            offset_ns=(offset_ns + self._offset_ns) // 2,
            threads=set(calls["thread"].unique().tolist()),
        )
