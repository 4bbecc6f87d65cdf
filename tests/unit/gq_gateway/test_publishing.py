"""Publishing: what reaches the producer, per-item results, and what becomes of a batch when the node does not answer."""

import json
from typing import Any

import pytest

from gq_proto import errors as e
from tests.unit.gq_gateway.rig import Rig


def test_a_message_goes_out_as_it_was_said() -> None:
    rig = Rig()
    answer = rig.ask("POST", "/topics/t/publish", {"value": "v", "key": "k", "partition": 1})
    assert answer.json == {"topic": "t", "partition": 1, "offset": 0, "timestamp": 1_000_000}
    rig.ask("POST", "/topics/t/publish",
            {"value": "/w==", "encoding": "base64", "headers": {"a": "1"}, "priority": "low", "delay": "1m"})
    assert rig.producer.sent == [("t", "v", "k", None, None, None, None, 1), ("t", b"\xff", None, [("a", "1")], 3, 60, None, None)]


def test_a_batch_with_bad_items_stores_the_good_ones_and_says_so() -> None:
    rig = Rig()
    rig.producer.refuse = lambda value: e.TooLarge("too large") if value == "big" else None
    rig.producer.fail = lambda value: e.DiskFull("full") if value == "late" else None
    items: list[Any] = [{"value": "a"}, {"value": 1}, {"value": "big"}, {"value": "*", "encoding": "base64"},
                        {"value": "late"}, {"value": "b"}, 7]
    answer = rig.ask("POST", "/topics/t/batch", {"messages": items})
    assert answer.status == 207
    assert (answer.json["published"], answer.json["failed"]) == (2, 5)
    codes = [result.get("error", {}).get("code") for result in answer.json["results"]]
    assert codes == [None, "bad_request", "too_large", "bad_request", "disk_full", None, "bad_request"]
    assert answer.json["results"][1]["error"]["field"] == "value"
    retriable = [result["error"]["retriable"] for result in answer.json["results"] if "error" in result]
    assert retriable == [False, False, False, True, False]
    assert [sent[1] for sent in rig.producer.sent] == ["a", "late", "b"]


def test_invalid_text_spoils_its_own_item_only() -> None:
    rig = Rig()
    answer = rig.ask("POST", "/topics/t/batch", b'{"messages":[{"value":"a"},{"value":"\xff"},{"value":"b"}]}')
    assert (answer.status, answer.json["published"]) == (207, 2)


@pytest.mark.parametrize("body", [b'{"messages":[]}', b'{"messages":7}', b'{}', b'[]', b'{"messages":[{"value":"a"}',
                                  b'{"messages":[],"x":1}', b'{"messages":[' + b"1," * 1100 + b"1]}"])
def test_what_is_no_batch_is_refused_whole(body: bytes) -> None:
    rig = Rig()
    answer = rig.ask("POST", "/topics/t/batch", body)
    if answer.status == 207:
        assert answer.json["failed"] == 1101
    else:
        assert (answer.status, answer.code) == (400, "bad_request")
    assert not rig.producer.sent


def test_when_the_node_takes_nothing_the_whole_is_refused() -> None:
    rig = Rig()
    rig.producer.refuse = lambda value: e.Unavailable("no metad")
    answer = rig.ask("POST", "/topics/t/batch", {"messages": [{"value": "a"}, {"value": "b"}]})
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "unavailable", "1")
    rig.producer.refuse, rig.producer.fail = lambda value: None, lambda value: e.TimedOut("?")
    assert rig.ask("POST", "/topics/t/batch", {"messages": [{"value": "a"}]}).code == "timed_out"


def test_when_the_node_stops_taking_half_way_each_item_knows() -> None:
    rig = Rig()
    rig.producer.refuse = lambda value: e.Busy("full") if value != "a" else None
    answer = rig.ask("POST", "/topics/t/batch", {"messages": [{"value": v} for v in "abc"]})
    assert answer.status == 207
    assert [result.get("error", {}).get("code") for result in answer.json["results"]] == [None, "busy", "busy"]


def test_a_topic_that_was_made_anew_is_found() -> None:
    """The message lies nowhere then: it goes out once more, and once only."""
    rig = Rig()
    tries: list[str] = []

    def fail(value: str) -> Any:
        tries.append(value)
        return e.UnknownTopicId("gone") if len(tries) < 2 else None

    rig.producer.fail = fail
    assert rig.ask("POST", "/topics/t/publish", {"value": "v"}).status == 200
    assert tries == ["v", "v"]
    tries.clear()
    assert rig.ask("POST", "/topics/t/batch", {"messages": [{"value": "v"}, {"value": "w"}]}).status == 200
    assert tries == ["v", "w", "v"]
    rig.producer.fail = lambda value: e.UnknownTopicId("gone")
    assert rig.ask("POST", "/topics/t/publish", {"value": "v"}).code == "unknown_topic_id"


def test_messages_takes_one_or_many() -> None:
    rig = Rig()
    assert rig.ask("POST", "/topics/t/messages", {"value": "v"}).json["topic"] == "t"
    assert rig.ask("POST", "/topics/t/messages", {"messages": [{"value": "v"}]}).json["published"] == 1
    assert rig.ask("POST", "/topics/t/messages", {"value": '"messages"'}).json["topic"] == "t"
    assert rig.ask("POST", "/topics/t/messages", b'{"messages"').code == "bad_request"


def test_nothing_new_is_begun_while_it_drains() -> None:
    rig = Rig()
    rig.drain = True
    answer = rig.ask("POST", "/topics/t/publish", {"value": "v"})
    assert (answer.status, answer.code) == (503, "unavailable")


def test_a_large_batch_is_bounded_by_its_count() -> None:
    from gq_gateway import publishing
    body = json.dumps({"messages": [{"value": ""}] * (publishing.BATCH_MAX + 1)}).encode()
    with pytest.raises(e.GoQueueError, match="a batch holds"):
        publishing._drafts(body)
