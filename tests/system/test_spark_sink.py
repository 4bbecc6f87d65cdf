"""Rows published from Spark, as a client reads them."""

import time

import pytest

from tests.system.harness import Node, vouched

HEADERS = "array<struct<key: string, value: binary>>"


def write(node: Node, rows, topic: str = "", /, **options: str) -> None:
    named = {"topic": topic} if topic else {}
    rows.write.format("goqueue").options(dataDir=str(node.data), **named, **options).mode("append").save()


def messages(node: Node, topic: str):
    """All of a topic, by partition and offset."""
    client = node.client()
    return [message for part in client.partitions(topic)
            for message in client.reader(topic, part.partition, "earliest", stop_at_end=True)]


def place(message) -> str:
    """What the sink says of the row."""
    return dict(message.headers)["spark-row"].decode()


def own(message):
    return [pair for pair in message.headers if pair[0] != "spark-row"]


def test_every_column_arrives_and_so_do_nulls(spark, shared_node):
    rows = spark.createDataFrame([
        (b"k", b"all", [("a", b"1"), ("a", b"\xff"), ("b", b"")]), (None, b"no key", None), (b"", b"", []),
        (b"null value", None, None), (b"\xff\x00", b"\x00\xfe", None),
    ], f"key binary, value binary, headers {HEADERS}")
    write(shared_node, rows, "columns")
    found = {(message.key, message.value): message for message in messages(shared_node, "columns")}
    assert found.keys() == {(b"k", b"all"), (None, b"no key"), (b"", b""), (b"null value", None), (b"\xff\x00", b"\x00\xfe")}
    assert own(found[b"k", b"all"]) == [("a", b"1"), ("a", b"\xff"), ("b", b"")] and own(found[b"", b""]) == []


def test_priorities_are_numbers_or_names(spark, shared_node):
    rows = spark.createDataFrame([("critical", 0), ("background", 4), (None, None)], "name string, number int")
    for topic, column in (("by.name", "name"), ("by.number", "number")):
        write(shared_node, rows.selectExpr("coalesce(name, 'none') AS value", f"{column} AS priority"), topic)
        assert {message.value: message.priority for message in messages(shared_node, topic)} == {
            b"critical": 0, b"background": 4, b"none": 2}


def test_a_column_names_the_topic_and_keys_choose_partitions_as_any_producers(spark, shared_node):
    rows = spark.range(3000).selectExpr("concat('topics.', id % 3) AS topic", "string(id % 7) AS key", "string(id) AS value")
    write(shared_node, rows)
    client = shared_node.client()
    for number in range(3):
        found = messages(shared_node, f"topics.{number}")
        assert sorted(int(message.value) for message in found) == list(range(number, 3000, 3))
        homes = {message.key: message.partition for message in found}
        assert all(client.publish(f"topics.{number}", b"", key=key).partition == home for key, home in homes.items())


def test_a_delay_is_kept(spark, shared_node):
    client = shared_node.client()
    rows = spark.sql("SELECT 'now' AS value, CAST(null AS INTERVAL SECOND) AS delay UNION ALL SELECT 'later', INTERVAL 600 SECOND")
    write(shared_node, rows, "delayed")
    assert [message.value for message in messages(shared_node, "delayed")] == [b"now"]
    lying = [message.value for part in client.partitions("delayed")
             for message in client.reader("delayed", part.partition, "earliest", stop_at_end=True, include_delayed=True)]
    assert sorted(lying) == [b"later", b"now"]


def test_what_was_read_can_be_written_and_each_row_knows_its_place(spark, shared_node):
    client = shared_node.client()
    with client.producer() as producer:
        for number in range(2000):
            producer.send("original", b"%d" % number, key=b"%d" % (number % 10), headers={"n": b"%d" % number}, priority=number % 5)
    vouched(shared_node, "original")
    rows = spark.read.format("goqueue").option("topic", "original").load(str(shared_node.data))
    write(shared_node, rows, "copied", compress="zstd", acks="all")
    found = messages(shared_node, "copied")
    assert sorted((int(m.value), m.key, own(m), m.priority) for m in found) == [
        (n, b"%d" % (n % 10), [("n", b"%d" % n)], n % 5) for n in range(2000)]
    places = [place(message).split("/") for message in found]
    assert len({write_id for write_id, *_ in places}) == 1 and {batch for _, batch, *_ in places} == {"0"}
    for task in {task for _, _, task, _ in places}:
        numbers = sorted(int(row) for _, _, one, row in places if one == task)
        assert numbers == list(range(len(numbers)))


def test_rows_of_a_write_that_failed_and_was_repeated_are_told_by_their_place(spark, shared_node):
    rows = spark.range(0, 2000, 1, 2).selectExpr("string(id) AS value", "2 AS priority")
    with pytest.raises(Exception, match=r"row again/0/1/999: priority 9: use 0\.\.4"):
        write(shared_node, rows.selectExpr("value", "if(value = '1999', 9, priority) AS priority"), "repeated", writeId="again")
    write(shared_node, rows, "repeated", writeId="again")
    found = messages(shared_node, "repeated")
    assert len(found) > 2000, "the write that failed left nothing, so this test shows nothing"
    by_place: dict[str, set[bytes]] = {}
    for message in found:
        by_place.setdefault(place(message), set()).add(message.value)
    assert all(len(values) == 1 for values in by_place.values())
    assert sorted(int(value) for [value] in by_place.values()) == list(range(2000))


def test_a_stream_that_is_restarted_repeats_its_last_batch_with_the_same_places(spark, shared_node, tmp_path):
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()
    (source / "1.txt").write_text("".join(f"{number}\n" for number in range(100)))

    def stream() -> str:
        query = (spark.readStream.text(str(source)).writeStream.format("goqueue").trigger(availableNow=True)
                 .options(dataDir=str(shared_node.data), topic="streamed", checkpointLocation=str(checkpoint)).start())
        assert query.awaitTermination(60)
        return str(query.id)

    query_id = stream()
    assert len(messages(shared_node, "streamed")) == 100
    assert {place(message).rpartition("/")[0] for message in messages(shared_node, "streamed")} == {f"{query_id}/0/0"}
    (source / "2.txt").write_text("".join(f"{number}\n" for number in range(100, 150)))
    stream()
    for left in (checkpoint / "commits").glob("*1*"):     # killed after the rows went out, before Spark noted it
        left.unlink()
    assert stream() == query_id
    found = messages(shared_node, "streamed")
    assert len(found) == 200
    values = {place(message): int(message.value) for message in found}
    assert sorted(values.values()) == list(range(150))
    assert {name.split("/")[1] for name in values} == {"0", "1"}


@pytest.mark.parametrize("columns, options, said", [
    ("string(id) AS v", {"topic": "t"}, "column 'v' means nothing to a message"),
    ("string(id) AS key", {"topic": "t"}, "there is no column 'value'"),
    ("id AS value", {"topic": "t"}, "column 'value' is bigint: cast it to binary or string"),
    ("string(id) AS value", {}, "no topic: name one with the option 'topic'"),
    ("string(id) AS value", {"topic": "t", "sever": "h:1"}, "option sever is unknown"),
    ("string(id) AS value, CAST(null AS string) AS topic", {}, "the topic is null"),
    ("string(id) AS value, 'urgent' AS priority", {"topic": "t"}, "priority 'urgent': use 0..4 or critical, high"),
    ("string(id) AS value, -1 AS priority", {"topic": "t"}, "priority -1: use 0..4"),
    ("string(id) AS value", {"topic": "not a name"}, "topic"),
    ("string(id) AS value, map('gq-batch', 'x') AS headers", {"topic": "t"}, "those names are the system's"),
])
def test_what_can_not_be_published_is_named(spark, shared_node, columns, options, said):
    with pytest.raises(Exception) as failed:
        write(shared_node, spark.sql(f"SELECT {columns} FROM range(3)"), **options)
    assert said in str(failed.value)


def test_a_log_is_not_overwritten(spark, shared_node):
    with pytest.raises(Exception, match="a log is only appended to"):
        spark.range(1).selectExpr("string(id) AS value").write.format("goqueue").option("topic", "t").mode("overwrite").save()


def test_no_daemon_is_said_in_time(spark, tmp_path):
    began = time.monotonic()
    with pytest.raises(Exception, match=r"cannot reach metad at .*: is the node up"):
        spark.range(1).selectExpr("string(id) AS value").write.format("goqueue").options(
            dataDir=str(tmp_path), topic="t", timeout="1").mode("append").save()
    assert time.monotonic() - began < 30
