"""Settling by receipt: single and many, arguments, and that a group's path takes that group's receipts only."""

from typing import Any

import pytest

from gq_proto import codec, limits
from gq_proto import errors as e
from gq_proto.messages import GroupInfo, Op
from gq_proto.receipt import Receipt
from tests.unit.gq_gateway.rig import Rig

PARTITION = codec.partition_of(b"g", limits.GROUPS_PARTITIONS)


def receipt(offset: int = 0, number: int = 5, topic: str = "t", partition: int = PARTITION) -> str:
    return Receipt(topic, 0, offset, 1, partition, number, 8, 99).text()


def rig_with(*outcomes: Any) -> Rig:
    rig = Rig()
    rig.client.answers["settle"] = list(outcomes)
    rig.client.answers["describe_group"] = GroupInfo("g", 5, "shared", 1, False, [], [])
    return rig


@pytest.mark.parametrize(("word", "more", "op", "arg_ms", "reason"), [
    ("ack", {}, Op.ACK, -1, ""), ("nack", {}, Op.NACK, -1, ""), ("nack", {"delay": "2s"}, Op.NACK, 2000, ""),
    ("nack", {"delay": 0}, Op.NACK, 0, ""), ("reject", {"reason": "why"}, Op.REJECT, -1, "why"),
    ("visibility", {"timeout": "1m"}, Op.EXTEND, 60_000, ""), ("release", {}, Op.RELEASE, -1, "")])
def test_each_op_with_its_argument(word: str, more: dict[str, Any], op: Op, arg_ms: int, reason: str) -> None:
    for path in (f"/messages/{word}", f"/groups/g/{word}"):
        rig = rig_with(None)
        answer = rig.ask("POST", path, {"receipt": receipt(7), **more})
        assert answer.status == 200 and answer.json["results"] == [{"receipt": receipt(7), "ok": True}]
        [settled] = [asked for asked in rig.client.asked if asked[0] == "settle"]
        assert (settled[1], settled[2][0].offset, *settled[3:]) == (op, 7, arg_ms, reason)


def test_a_single_stale_receipt_is_a_conflict() -> None:
    answer = rig_with(e.StaleReceipt("too late")).ask("POST", "/messages/ack", {"receipt": receipt()})
    assert (answer.status, answer.code) == (409, "stale_receipt")


def test_of_many_each_has_its_result() -> None:
    rig = rig_with(None, e.StaleReceipt("too late"))
    answer = rig.ask("POST", "/messages/ack", {"receipts": [receipt(1), "garbage", receipt(2)]})
    assert (answer.status, answer.json["settled"], answer.json["failed"]) == (207, 1, 2)
    assert [result["ok"] for result in answer.json["results"]] == [True, False, False]
    assert [result["error"]["code"] for result in answer.json["results"][1:]] == ["bad_request", "stale_receipt"]


def test_when_the_coordinator_is_away_the_whole_may_be_asked_again() -> None:
    answer = rig_with(e.NotCoordinator("starts"), e.NotCoordinator("starts")).ask(
        "POST", "/messages/ack", {"receipts": [receipt(1), receipt(2)]})
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "not_coordinator", "1")


@pytest.mark.parametrize("other", [receipt(number=6), receipt(partition=(PARTITION + 1) % limits.GROUPS_PARTITIONS)])
def test_a_groups_path_takes_its_own_receipts_only(other: str) -> None:
    rig = rig_with(None)
    answer = rig.ask("POST", "/groups/g/ack", {"receipts": [receipt(1), other]})
    assert answer.status == 207 and answer.json["results"][1]["error"]["code"] == "bad_request"
    [settled] = [asked for asked in rig.client.asked if asked[0] == "settle"]
    assert [one.offset for one in settled[2]] == [1]
    assert rig_with().ask("POST", "/groups/g/ack", {"receipt": other}).status == 400


def test_without_a_group_each_topic_is_asked_for() -> None:
    rig = rig_with(None, None)
    rig.ask("POST", "/messages/ack", {"receipts": [receipt(topic="a"), receipt(topic="b")]})
    assert {("consume", "a"), ("consume", "b")} <= set(rig.authorized)


@pytest.mark.parametrize(("word", "body"), [
    ("ack", {}), ("ack", {"receipt": receipt(), "receipts": [receipt()]}), ("ack", {"receipts": []}), ("ack", {"receipt": "x"}),
    ("nack", {"receipt": receipt(), "delay": -1}), ("visibility", {"receipt": receipt()}),
    ("visibility", {"receipt": receipt(), "timeout": "13h"}), ("reject", {"receipt": receipt(), "reason": "x" * 1025}),
    ("ack", {"receipt": receipt(), "delay": 1})])
def test_what_is_wrong_is_refused(word: str, body: dict[str, Any]) -> None:
    rig = rig_with()
    answer = rig.ask("POST", f"/messages/{word}", body)
    assert (answer.status, answer.code) == (400, "bad_request")
    assert not [asked for asked in rig.client.asked if asked[0] == "settle"]
