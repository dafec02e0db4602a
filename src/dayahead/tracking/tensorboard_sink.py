"""The sink of TensorBoard: one folder per pipeline run, one file of events per stage.

tensorboard --logdir .dayahead/tensorboard
"""

import os
import re
from collections.abc import Iterator
from io import BufferedRandom
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import metadata, plugin_data_pb2
from tensorboard.plugins.hparams.api_pb2 import Status
from tensorboard.summary.writer.record_writer import RecordWriter

from dayahead.core.project import cache_root
from dayahead.tracking.outbox import Entry, Outbox
from dayahead.tracking.sinks import Progress, Sink

GROUPS = {"window": "by window/", "metrics": "over windows/"}
"""Groups in which TensorBoard shows metrics, by kind of entry; system metrics have a prefix."""


class TensorBoardSink(Sink):
    """Appends parameters and metrics to files of events."""

    kind = "tensorboard"

    def __init__(self) -> None:
        self.folder = cache_root() / "tensorboard"
        self.name = str(self.folder)

    def send(self, outbox: Outbox, progress: Progress) -> Iterator[Progress]:
        """Append all entries at once.

        Anything that an interrupted call has written beyond `progress` is truncated first, so that
        no event is written twice; a missing file is written again.
        """
        path = self._path(outbox)
        if not path.exists() or path.stat().st_size < progress.size:
            progress = Progress()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        with path.open("r+b") as file:
            file.truncate(progress.size)
            file.seek(progress.size)
            if progress.size == 0:
                _write(file, Event(file_version="brain.Event:2"))
            offset = progress.offset
            for reached, entry in outbox.read(progress.offset):
                for event in _events(entry, path.parent.name):
                    _write(file, event)
                offset = reached
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        yield Progress(self.name, run=str(path), offset=offset, size=size)

    def _path(self, outbox: Outbox) -> Path:
        start = outbox.start() or {}
        run = re.sub(r"[^\w.+() -]", "-", f"{start['name']} {start['pipeline_run'][:6]}")
        # TensorBoard reads a folder's files in order of name: here, of the start of the stages.
        return self.folder / run / f"events.out.tfevents.{start['at'] // 1000}.{start['stage']}"


def _write(file: BufferedRandom, event: Event) -> None:
    RecordWriter(file).write(event.SerializeToString())


def _events(entry: Entry, run: str) -> Iterator[Event]:
    seconds = (entry.get("timestamp") or entry["at"]) / 1000
    if "step" in entry:  # the metrics of a "registry" entry are in one of "metrics" too
        group = GROUPS.get(entry["kind"], "")
        scalars = [
            Summary.Value(tag=f"{group}{name}", simple_value=value)
            for name, value in entry["metrics"].items()
        ]
        yield Event(wall_time=seconds, step=entry["step"], summary=Summary(value=scalars))
    if entry["kind"] == "start":
        info = plugin_data_pb2.SessionStartInfo(group_name=run, start_time_secs=seconds)
        for name, text in entry["params"].items():
            info.hparams[name].string_value = text
        yield _session_event(seconds, metadata.SESSION_START_INFO_TAG, session_start_info=info)
    if entry["kind"] == "end":
        is_finished = entry["status"] == "FINISHED"
        status = Status.STATUS_SUCCESS if is_finished else Status.STATUS_FAILURE
        ended = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=seconds)
        yield _session_event(seconds, metadata.SESSION_END_INFO_TAG, session_end_info=ended)


def _session_event(seconds: float, tag: str, **info: object) -> Event:
    data = plugin_data_pb2.HParamsPluginData(**info)
    value = Summary.Value(tag=tag, metadata=metadata.create_summary_metadata(data))
    return Event(wall_time=seconds, summary=Summary(value=[value]))
