"""The streaming half of the source: how far each micro-batch goes. Its rows are read as a batch's are.

    a stream's offset    {"topic": {"id": topic id, "partitions": {"0": first offset that is not read yet, ..}}, ..}

Deterministic: a micro-batch that Spark runs again, after whatever crash, has the same rows, because the log below the last stable
offset does not change. (With includeDelayed a message that was cancelled meanwhile is missing.) Partitions and topics that appear
are read from their beginning; what vanishes, and a topic that was made anew, is lost: an error, or a warning and the rest. Keeps
nothing that a restart would miss.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from gq_spark import bounds, layout, planning
from gq_spark.disk import Disk
from gq_spark.log import Kept, Log
from gq_spark.loss import lost
from gq_spark.options import Options
from gq_spark.planning import Stretch
from gq_spark.pruning import Window
from gq_spark.rates import shared_out
from gq_spark.source import CORES, Split, batches

if TYPE_CHECKING:
    import pyarrow as pa

Key = tuple[str, int, int]      # topic, its id, partition
Ends = dict[Key, int]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options, schema: StructType) -> None:
        self._options, self._schema = options, schema
        self._disk = Disk()
        self._kept: Kept = {}
        self._target: Ends | None = None
        self._available: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        logs = self._logs(strict=True)
        bounds.check_named(self._options, [(topic, number) for topic, _, number in logs])
        return encoded({key: bounds.start_in(log, self._options, self._end(log)) for key, log in logs.items()})

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_offsets) if self._options.max_offsets else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = {key: self._end(log) for key, log in self._logs().items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        known, logs = decoded(start), self._logs()
        self._look_for_lost(known, logs)
        begins = {key: known.get(key, log.start) for key, log in logs.items()}
        ends = {key: self._end_from(log, begins[key]) for key, log in logs.items()}
        self._available = encoded(ends)
        if self._target is not None:
            ends = {key: max(min(end, self._target.get(key, 0)), begins[key]) for key, end in ends.items()}
        if isinstance(limit, ReadMaxRows):
            ends = shared_out(begins, ends, limit.max_rows)
        return encoded(_without_made_anew(known, logs) | ends)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._available

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begins, ends, logs = decoded(start), decoded(end), self._logs()
        stretches = []
        for key, high in ends.items():
            if high <= begins.get(key, -1):
                continue
            if key in logs:
                stretches.append(Stretch(logs[key], self._begin(logs[key], begins.get(key)), high))
            else:
                self._lost(f"{key[0]}/{key[2]}: the partition is gone; offsets below {high} were to be read")
        return [Split(pieces) for pieces in planning.plan(stretches, self._options, Window(), CORES)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        assert isinstance(partition, Split)
        return batches(Disk(), self._options, self._schema, partition)

    # -- partitions ------------------------------------------------------------------------

    def _logs(self, strict: bool = False) -> dict[Key, Log]:
        """Strict: a topic that was named is there. Later it may be gone, as its partitions may."""
        fatal = self._options.fail_on_data_loss
        places = layout.find(self._disk, self._options.paths, self._options.topics, fatal, strict or fatal)
        self._disk.opened.clear()
        return {(place.topic, place.topic_id, place.number): Log(self._disk, place, self._kept) for place in places}

    def _end(self, log: Log) -> int:
        return bounds.end_of(log, self._options.committed)

    def _end_from(self, log: Log, begin: int) -> int:
        end = self._end(log)
        if end < begin:
            self._lost(f"{log.place.name}: the log ends at offset {end}, and {begin} was next")
        return max(end, begin)

    def _begin(self, log: Log, known: int | None) -> int:
        if known is not None and known < log.start:
            self._lost(f"{log.place.name}: offsets {known}-{log.start - 1} were to be read and are gone")
        return max(log.start, known or 0)

    def _look_for_lost(self, known: Ends, logs: dict[Key, Log]) -> None:
        for topic, id_, number in known:
            if (topic, id_, number) not in logs:
                self._lost(f"{topic}/{number}: the partition is gone, or of a topic made anew")

    def _lost(self, what: str) -> None:
        lost(self._options.fail_on_data_loss, what)


def _without_made_anew(known: Ends, logs: dict[Key, Log]) -> Ends:
    """What vanished keeps its place, unless another topic has its name now."""
    ids = {topic: id_ for topic, id_, _ in logs}
    return {key: offset for key, offset in known.items() if ids.get(key[0], key[1]) == key[1]}


def encoded(ends: Ends) -> dict[str, Any]:
    """As Spark keeps it in a checkpoint: JSON, in a fixed order, for Spark compares texts."""
    found: dict[str, Any] = {}
    for (topic, id_, number), offset in sorted(ends.items()):
        found.setdefault(topic, {"id": id_, "partitions": {}})["partitions"][str(number)] = offset
    return found


def decoded(offset: dict[str, Any]) -> Ends:
    return {(topic, said["id"], int(number)): end for topic, said in offset.items() for number, end in said["partitions"].items()}
