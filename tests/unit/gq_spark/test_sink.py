import pickle

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.types import BinaryType, StructType

from gq_proto.errors import BadConfig, BadRecord, BadRequest
from gq_spark import sink
from gq_spark.rows import located

SCHEMA = StructType().add("value", BinaryType())


def test_options_are_case_insensitive_and_have_defaults():
    target = sink.target_of({"DATADIR": "/d", "topic": "t", "Acks": "all", "compress": "zstd", "timeout": "2.5", "writeid": "w"})
    assert target == sink.Target(data_dir="/d", topic="t", acks="all", compress="zstd", timeout=2.5, write_id="w")
    assert sink.target_of({}) == sink.Target()
    assert sink.target_of({"path": "/d", "checkpointLocation": "/c", "queryName": "q"}).data_dir == "/d"


@pytest.mark.parametrize("options, said", [
    ({"acks": "two"}, "acks='two'"), ({"compress": "lz4"}, "compress='lz4'"), ({"timeout": "soon"}, "timeout='soon'"),
    ({"timeout": "0"}, "timeout='0'"), ({"timeout": "inf"}, "timeout='inf'"), ({"sever": "h:1"}, "option sever is unknown"),
    ({"server": "h:1", "dataDir": "/d"}, "give one"),
])
def test_bad_options_are_named(options, said):
    with pytest.raises(BadConfig, match=said):
        sink.target_of(options)


@pytest.mark.parametrize("make", [sink.writer, sink.stream_writer])
def test_a_log_is_not_overwritten(make):
    with pytest.raises(BadRequest, match="append"):
        make({"topic": "t"}, SCHEMA, True)


@pytest.mark.parametrize("make", [sink.writer, sink.stream_writer])
def test_each_write_has_an_id_of_its_own_that_travels_to_the_tasks(make):
    one, other = make({"topic": "t"}, SCHEMA, False), make({"topic": "t"}, SCHEMA, False)
    assert one.write_id != other.write_id
    assert pickle.loads(pickle.dumps(one)).write_id == one.write_id
    assert make({"topic": "t", "writeId": "again"}, SCHEMA, False).write_id == "again"


def test_rows_are_numbered_through_all_batches_of_a_task():
    pa = pytest.importorskip("pyarrow")
    sent = []
    send = lambda *message: sent.append(message)    # noqa: E731
    headers = [[{"key": "h", "value": b"1"}], [{"key": "spark-row", "value": b"of another write"}]]
    batch = pa.RecordBatch.from_pydict({"value": [b"a", b"b"], "headers": headers})
    assert sink._send(batch, "t", send, "w/0/3/", sink._send(batch, "t", send, "w/0/3/", 0)) == 4
    assert [message[3][-1] for message in sent] == [("spark-row", b"w/0/3/%d" % row) for row in range(4)]
    assert [len(message[3]) for message in sent] == [2, 1, 2, 1]
    assert sent[0][3][0] == ("h", b"1") and sent[0][:3] == ("t", b"a", None)


def test_a_bad_row_is_named():
    pa = pytest.importorskip("pyarrow")

    def send(*message):
        if message[1] == b"bad":
            raise BadRecord("priority 9: use 0..4")

    with pytest.raises(BadRecord, match="row w/0/3/11: priority 9"):
        sink._send(pa.RecordBatch.from_pydict({"value": [b"good", b"bad"]}), "t", send, "w/0/3/", 10)
    assert str(located(BadRecord("x"), "y")) == "row y: x"
