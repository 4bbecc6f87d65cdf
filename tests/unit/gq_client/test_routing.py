"""The routing table: newest news wins, and names lead to ids lead to endpoints."""

import pytest

from gq_client.routing import METAD, Routes, To
from gq_proto import codec
from gq_proto import messages as m
from gq_proto.errors import UnknownPartition, UnknownTopic
from tests.unit.gq_client.wire_fakes import DELAYD, GROUPD, LOGD, news, topic


def routes(*topics: m.TopicMeta) -> Routes:
    made = Routes(["a", "b"])
    made.merge(news(*topics))
    return made


def test_endpoints() -> None:
    table = routes(topic(), topic("__groups", 9, 16))
    assert table.endpoint(METAD) == "a"
    assert table.endpoint(To.leader(5, 1)) == LOGD
    assert table.endpoint(To.group("g")) == GROUPD
    assert table.endpoint(To.node("logd", "n")) == LOGD
    assert table.endpoint(To.delays(5, 1)) == DELAYD
    assert table.endpoint(To.at("tcp://x")) == "tcp://x"
    for nobody in (To.leader(5, 2), To.leader(6, 0), To.node("logd", "m"), To.groups(16), To.delays(5, 2), To.delays(6, 0)):
        assert table.endpoint(nobody) is None


def test_bootstraps_take_turns() -> None:
    table = routes()
    table.next_bootstrap()
    assert table.endpoint(METAD) == "b"
    table.next_bootstrap()
    assert table.endpoint(METAD) == "a"


def test_the_first_endpoint_of_this_host_is_taken_else_the_last() -> None:
    table = Routes(["a"], lambda endpoint: not endpoint.startswith("ipc"))
    table.merge(m.MetadataReply(1, [topic()], [], [m.DaemonMeta("n", "logd", ["ipc:///l", "tcp://h:1"], 1)], "c"))
    assert table.endpoint(To.leader(5, 0)) == "tcp://h:1"
    table.merge(m.MetadataReply(2, [], [], [m.DaemonMeta("n", "logd", ["ipc:///l"], 2)], "c"))
    assert table.endpoint(To.leader(5, 0)) == "ipc:///l"


def test_a_topic_made_anew_replaces_the_old_one() -> None:
    table = routes(topic(id=5))
    table.merge(news(topic(id=6, version=3), version=3, deleted=(5,)))
    assert table.topic("t").id == 6 and 5 not in table.by_id
    table.remove(5)
    assert table.topic("t").id == 6


def test_old_news_is_ignored() -> None:
    table = routes(topic(version=1))
    table.merge(news(topic(partitions=4, version=5), version=5))
    table.merge(news(topic(partitions=2, version=1), version=1))
    table.add(topic(partitions=2, version=4))
    assert len(table.topic("t").partitions) == 4 and table.version == 5


def test_full_news_forgets_what_is_not_in_it() -> None:
    table = routes(topic("a", 1), topic("b", 2))
    reply = news(topic("a", 1), version=2)
    reply.full = True
    table.merge(reply)
    assert set(table.topics) == {"a"} and set(table.by_id) == {1}


def test_another_cluster_replaces_everything() -> None:
    table = routes(topic("a", 1))
    table.merge(m.MetadataReply(1, [topic("b", 2)], [], [], "another"))
    assert set(table.topics) == {"b"} and table.version == 1 and not table.daemons


def test_unknown_names_and_partitions_say_so() -> None:
    table = routes(topic())
    with pytest.raises(UnknownTopic, match="create it"):
        table.topic("x")
    assert table.check_partition(table.topic("t"), 1) == 1
    for partition in (-1, 2):
        with pytest.raises(UnknownPartition, match=r"0\.\.1"):
            table.check_partition(table.topic("t"), partition)


def test_a_groups_partition_is_that_of_its_name() -> None:
    assert To.group("über").partition == codec.partition_of("über".encode(), 16)
