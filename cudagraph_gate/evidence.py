"""The run folder: write-once artefacts, an append-only pilot log, the newest run.

``.cgate/runs/<time>-<workload>/`` holds ``run.json``, ``fingerprint.json``, ``timeline.parquet``,
``profile.json``, ``diagnosis.json``, ``pilot.jsonl``, ``verdict.json``, and ``scenario-NAME.json`` where a
lost process hands over to the next. Every artefact is written beside its place and renamed, so a run that is
killed at any point leaves whole artefacts only; the log may lose its last, unfinished line.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final, TypeVar

import msgspec

from cudagraph_gate.errors import EvidenceError, UsageError
from cudagraph_gate.model import (
    SCHEMA_VERSION,
    Diagnosis,
    Fingerprint,
    NotMeasured,
    ProfileTimes,
    Value,
    Verdict,
)
from cudagraph_gate.records import Record, TrialStarted

RUNS: Final = Path(".cgate") / "runs"
RUN_FILE: Final = "run.json"
FINGERPRINT_FILE: Final = "fingerprint.json"
TIMELINE_FILE: Final = "timeline.parquet"
PROFILE_FILE: Final = "profile.json"
DIAGNOSIS_FILE: Final = "diagnosis.json"
PILOT_LOG: Final = "pilot.jsonl"
VERDICT_FILE: Final = "verdict.json"

NAME_LENGTH: Final = 100
"""Characters of a workload's name in its run folder's: file systems allow 255 bytes for the whole."""

T = TypeVar("T")


class RunInfo(Value, frozen=True, kw_only=True):
    """What a run folder is about."""

    schema_version: int = SCHEMA_VERSION
    workload: str
    """The workload file as the user named it."""
    created: str
    """UTC, ISO 8601."""
    mode: str
    """``module`` (keeps the workload contract), ``script`` (profiled only) or ``trace`` (a file)."""
    device: str
    """What was asked for: ``auto``, ``cuda`` or ``simulated``; ``none`` for a trace."""


class Run:
    """One run folder. Reading returns ``None`` for an artefact that was never written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.name

    @property
    def timeline_path(self) -> Path:
        """Where the timeline lies."""
        return self.folder / TIMELINE_FILE

    @property
    def pilot_log_path(self) -> Path:
        """Where the pilot log lies."""
        return self.folder / PILOT_LOG

    def info(self) -> RunInfo:
        """The run's description. Raises EvidenceError if this is no run folder."""
        info = self._read(RUN_FILE, RunInfo)
        if info is None:
            raise EvidenceError(
                "no run.json in it", where=str(self.folder), hint="name a run folder of cgate"
            )
        return info

    def fingerprint(self) -> Fingerprint | None:
        """The environment it was recorded in."""
        return self._read(FINGERPRINT_FILE, Fingerprint)

    def profile(self) -> ProfileTimes | None:
        """Unrecorded request times of the profile stage."""
        return self._read(PROFILE_FILE, ProfileTimes)

    def diagnosis(self) -> Diagnosis | None:
        """The analysis of its timeline."""
        return self._read(DIAGNOSIS_FILE, Diagnosis)

    def verdict(self) -> Verdict | None:
        """The verdict given when it was run."""
        return self._read(VERDICT_FILE, Verdict)

    def write(self, artefact: Value) -> None:
        """Write an artefact under the name that belongs to its type. Raises EvidenceError if it can't."""
        with self.replacing(_FILE_OF[type(artefact)]) as temporary:
            temporary.write_bytes(msgspec.json.format(msgspec.json.encode(artefact), indent=2) + b"\n")

    @contextmanager
    def replacing(self, name: str) -> Iterator[Path]:
        """A temporary path that takes the place of artefact ``name`` when the block ends well."""
        temporary = self.folder / f".{name}.{os.getpid()}"
        try:
            yield temporary
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            temporary.replace(self.folder / name)
        except OSError as error:
            raise _unwritable(self.folder / name, error) from error
        finally:
            temporary.unlink(missing_ok=True)

    @contextmanager
    def exclusively(self) -> Iterator[None]:
        """Nobody else adds to this run in the block, and the verdict of what it held before is gone.

        Raises UsageError where another process does. A file system without locks is taken as it is.
        """
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UsageError(
                    f"another cgate adds to run {self.name}",
                    hint="wait for its end, or start a new run with cgate run",
                ) from error
            except OSError:
                pass
            with suppress(OSError):  # what can't be written says so itself
                (self.folder / VERDICT_FILE).unlink(missing_ok=True)
            yield
        finally:
            os.close(folder)

    def append(self, record: Record) -> None:
        """Add one line to the pilot log and push it out of this process.

        A last line that a killed writer left unfinished is cut off first. Raises EvidenceError if the log
        can't be written.
        """
        line = msgspec.json.encode(record) + b"\n"
        try:
            with self.pilot_log_path.open("ab+") as log:
                _cut_unfinished_line(log)
                log.write(line)
        except OSError as error:
            raise _unwritable(self.pilot_log_path, error) from error

    def records(self) -> tuple[Record, ...]:
        """The pilot log. A last line without its end was being written when the run died: it is left out.

        Raises EvidenceError, with the line number, for any other line that can't be read.
        """
        data = _bytes_of(self.pilot_log_path)
        if data is None:
            return ()
        *lines, _unfinished = data.split(b"\n")
        return tuple(
            _record(line, f"{self.pilot_log_path}:{number}")
            for number, line in enumerate(lines, start=1)
            if line
        )

    def _read(self, name: str, kind: type[T]) -> T | None:
        path = self.folder / name
        data = _bytes_of(path)
        if data is None:
            return None
        _check_version(_decode(data, _Versioned, str(path)).schema_version, str(path))
        artefact: T = _decode(data, kind, str(path))
        return artefact


_FILE_OF: Final[dict[type, str]] = {
    RunInfo: RUN_FILE,
    Fingerprint: FINGERPRINT_FILE,
    ProfileTimes: PROFILE_FILE,
    Diagnosis: DIAGNOSIS_FILE,
    Verdict: VERDICT_FILE,
}


def _decode(data: bytes, kind: Any, where: str) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise EvidenceError(f"damaged ({error})", where=where, hint="run the stage again") from error


class _Versioned(msgspec.Struct):
    schema_version: int


def _record(line: bytes, where: str) -> Record:
    record: Record = _decode(line, Record, where)
    if isinstance(record, TrialStarted):
        _check_version(record.schema_version, where)
    return record


def _check_version(version: int, where: str) -> None:
    if version != SCHEMA_VERSION:
        raise EvidenceError(
            f"has schema version {version}, this cgate reads {SCHEMA_VERSION}",
            where=where,
            hint="use the cgate version that wrote it, or run the workload again",
        )


def _bytes_of(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise EvidenceError(f"can't read it ({error.strerror})", where=str(path)) from error


def _unwritable(path: Path, error: OSError) -> EvidenceError:
    return EvidenceError(
        f"can't write it ({error.strerror})", where=str(path), hint="make room, or run elsewhere"
    )


def _cut_unfinished_line(log: IO[bytes]) -> None:
    size = log.seek(0, os.SEEK_END)
    if size == 0:
        return
    log.seek(size - 1)
    if log.read(1) != b"\n":
        log.seek(0)
        log.truncate(log.read().rfind(b"\n") + 1)


def create_run(
    workload: str, mode: str, device: str, *, root: Path = RUNS, now: Callable[[], datetime] | None = None
) -> Run:
    """Make a new run folder; its name sorts by time and is unique."""
    moment = (now or (lambda: datetime.now(UTC)))()
    stem = f"{moment:%Y%m%dT%H%M%S}{moment.microsecond // 1000:03d}-{Path(workload).stem[:NAME_LENGTH]}"
    for attempt in range(100):
        folder = root / (stem if attempt == 0 else f"{stem}-{attempt}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise EvidenceError(
                f"can't make a run folder ({error.strerror})",
                where=str(root),
                hint="run in a writable folder",
            ) from error
        run = Run(folder)
        run.write(RunInfo(workload=workload, created=moment.isoformat(), mode=mode, device=device))
        return run
    raise EvidenceError("too many runs of one millisecond", where=str(root))


def open_run(folder: Path) -> Run:
    """The run in ``folder``. Raises EvidenceError if there is none."""
    run = Run(folder)
    run.info()
    return run


def newest_run(root: Path = RUNS, *, workload: str | None = None) -> Run:
    """The newest run (of ``workload``, if named). Raises EvidenceError if there is none."""
    folders = sorted(filter(_holds_run, root.glob("*")), reverse=True)
    for folder in folders:
        run = Run(folder)
        if workload is None or run.info().workload == workload:
            return run
    wanted = f" of {workload}" if workload else ""
    raise EvidenceError(
        f"no run{wanted} found",
        where=str(root),
        hint="start with: cgate run WORKLOAD.py, or name one with --run DIR",
    )


def _holds_run(folder: Path) -> bool:
    try:
        return (folder / RUN_FILE).is_file()
    except OSError:  # another user's, who lets nobody in
        return False


def missing(what: str) -> NotMeasured:
    """The value for an artefact that was never written."""
    return NotMeasured(reason=f"the run has no {what}: it ended before that stage, or the stage was not run")
