"""metad's decisions, request by request, and that its log adds up to its state whatever was asked."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gq_metad import entries
from gq_metad.core import EPOCH_MAX, Core
from gq_metad.effects import Append
from gq_metad.state import State
from gq_metad.topics import Defaults
from gq_proto import limits
from gq_proto import messages as m
from gq_proto.errors import (
    AlreadyExists,
    BadName,
    BadRequest,
    Busy,
    DiskFull,
    Fenced,
    Forbidden,
    TimedOut,
    Unavailable,
    UnknownKind,
    UnknownTopic,
)
from tests.unit.gq_metad.conftest import Meta


def replayed(meta: Meta) -> State:
    """What the log adds up to, through its wire form."""
    state = State()
    for entry in entries.decode(entries.encode(meta.log)):
        state.apply(entry)
    return state


# -- bootstrap --------------------------------------------------------------------------

def test_a_new_cluster_has_an_id_and_the_internal_topics(meta: Meta) -> None:
    assert meta.state.cluster_id
    assert meta.state.ids.keys() == {"__groups", "__txn"}
    for name in ("__groups", "__txn"):
        topic = meta.topic(name)
        assert len(topic.partitions) == 16 and topic.config.retention_ms == topic.config.retention_bytes == -1
        assert {p.leader for p in topic.partitions} == {""}
    assert not any(isinstance(e, Append) for e in meta.core.bootstrap(1.0, 1))


# -- registering ------------------------------------------------------------------------

def test_the_first_logd_leads_what_nobody_leads(meta: Meta) -> None:
    reply = meta.register()
    assert reply.incarnation == 1 and reply.version == meta.state.version and reply.cluster_id == meta.state.cluster_id
    assert {(p.leader, p.epoch, tuple(p.isr)) for p in meta.topic("__groups").partitions} == {("n1", 1, ("n1",))}


def test_every_registration_of_a_logd_is_a_new_epoch_of_what_it_leads(led: Meta) -> None:
    led.register("n2")
    assert {p.leader for p in led.topic("__groups").partitions} == {"n1"}
    led.register("n1")
    assert {p.epoch for p in led.topic("__groups").partitions} == {2}
    assert led.register("n1").incarnation == 3
    led.register("n2")
    assert {p.epoch for p in led.topic("__groups").partitions} == {3}


def test_other_daemons_lead_nothing(meta: Meta) -> None:
    meta.register("n1", "groupd")
    assert {p.leader for p in meta.topic("__groups").partitions} == {""}
    assert meta.state.daemons["groupd", "n1"].endpoints == ["ipc:///n1/groupd"]


@pytest.mark.parametrize("body", [
    m.Register("", "logd", ["x"]), m.Register("n/1", "logd", ["x"]), m.Register("n", "log d", ["x"]), m.Register("n", "logd", []),
    m.Register("n", "logd", ["x"] * 17), m.Register("n", "logd", ["x" * 301])])
def test_bad_registrations(meta: Meta, body: m.Register) -> None:
    with pytest.raises((BadName, BadRequest)):
        meta.ask(body)


def test_daemons_are_bounded(meta: Meta, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DAEMONS_MAX", 2)
    meta.register("a"), meta.register("b")
    with pytest.raises(Busy):
        meta.ask(m.Register("c", "logd", ["x"]))
    assert meta.register("a").incarnation == 2


def test_who_is_up(meta: Meta) -> None:
    meta.register("n1", "logd", peer=b"1")
    meta.register("n1", "groupd", peer=b"2")
    for _ in range(5):
        meta.pass_time(60)
        meta.send(m.Metadata(), peer=b"2")
    assert meta.core.up(meta.now) == {("logd", "n1"): False, ("groupd", "n1"): True}


# -- following --------------------------------------------------------------------------

def test_the_first_answer_is_everything_then_only_what_changed(led: Meta) -> None:
    first = led.ask(m.Metadata())
    assert first.full and {t.name for t in first.topics} == {"__groups", "__txn"} and first.deleted == []
    led.make("orders")
    second = led.ask(m.Metadata(first.version))
    assert not second.full and [t.name for t in second.topics] == ["orders"] and len(second.daemons) == 1
    third = led.ask(m.Metadata(second.version))
    assert (third.topics, third.deleted, third.version) == ([], [], second.version)


def test_only_the_topics_asked_for(led: Meta) -> None:
    led.make("a"), led.make("b")
    assert [t.name for t in led.ask(m.Metadata(topics=["b", "none"])).topics] == ["b"]
    assert led.ask(m.Metadata(topics=[])).topics == []


def test_a_long_poll_waits_for_a_change(led: Meta) -> None:
    poll = led.send(m.Metadata(led.state.version, 5_000))
    assert not poll.done
    led.ask(m.InitProducer())
    assert not poll.done                                       # no change of the metadata
    led.send(m.CreateTopic("orders"))
    assert [t.name for t in poll.answer.topics] == ["orders"]


def test_a_long_poll_ends_in_time(led: Meta) -> None:
    led.pass_time(60)
    version = led.state.version
    short, hasty = led.send(m.Metadata(version, 5_000)), led.send(m.Metadata(version, 60_000), patience=2)
    assert led.core.next_deadline() == pytest.approx(led.now + 1.8)
    led.pass_time(1.9)                                         # before its caller gives up
    assert hasty.answer.topics == [] and hasty.answer.version == version and not short.done
    led.pass_time(3.2)
    assert short.answer.topics == [] and led.core.next_deadline() is None
    led.send(m.Metadata(version, 2**60), patience=10**6)
    assert led.core.next_deadline() == led.now + 60            # nobody waits for ever


def test_who_knows_more_than_there_is_gets_everything(led: Meta) -> None:
    assert led.ask(m.Metadata(10**9, 5_000)).full
    assert led.ask(m.Metadata(-1)).full


def test_deletions_are_told_to_who_knew_and_to_logds(led: Meta) -> None:
    topic, before = led.make("orders"), led.state.version
    deleted = led.send(m.DeleteTopic("orders"))
    led.apply()
    assert deleted.answer.topic_id == topic.id
    assert led.ask(m.Metadata(before)).deleted == [topic.id]
    assert led.ask(m.Metadata(led.state.version)).deleted == []
    assert led.ask(m.Metadata()).deleted == []
    assert led.ask(m.Metadata(applied_by="n1")).deleted == [topic.id]


def test_who_was_away_for_longer_than_tombstones_last_gets_everything(led: Meta, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TOMBSTONES_MAX", 2)
    versions = []
    for name in "abc":
        led.make(name)
        versions.append(led.state.version)
        led.send(m.DeleteTopic(name))
        led.apply()
    assert len(led.state.tombstones) == 2
    assert led.ask(m.Metadata(versions[0])).full
    assert not led.ask(m.Metadata(versions[1])).full


def test_waiters_are_bounded(led: Meta, monkeypatch: pytest.MonkeyPatch) -> None:
    led.pass_time(60)
    monkeypatch.setattr(limits, "METADATA_WAITERS_MAX", 1)
    led.send(m.Metadata(led.state.version, 5_000))
    for body in (m.Metadata(led.state.version, 5_000), m.CreateTopic("x"), m.DeleteTopic("x"), m.AlterTopic("x")):
        with pytest.raises(Busy):
            led.ask(body)
    assert "x" not in led.state.ids
    assert led.ask(m.Metadata(led.state.version)).topics == []  # who does not wait is served


# -- creating ----------------------------------------------------------------------------

def test_creation_is_answered_when_the_leaders_have_it(led: Meta) -> None:
    asked = led.send(m.CreateTopic("orders", config={"maxRetries": 5}))
    assert not asked.done
    led.send(m.Metadata(led.state.version - 1, applied_by="n1"))
    assert not asked.done
    led.apply("n9")                                            # nobody knows that one
    assert not asked.done
    led.apply()
    assert asked.answer.created and asked.answer.version == led.topic("orders").version
    topic = asked.answer.topic
    assert (topic.name, topic.config.max_retries, topic.created_us, len(topic.partitions)) == ("orders", 5, 7_000_000, 3)
    assert 0 < topic.id < 2**63


def test_a_restarted_logd_has_applied_nothing(led: Meta) -> None:
    led.register()
    asked = led.send(m.CreateTopic("orders"))
    assert not asked.done
    led.apply()
    assert asked.answer


def test_without_a_logd_it_is_made_but_not_confirmed(meta: Meta) -> None:
    asked = meta.send(m.CreateTopic("orders"), patience=10)
    meta.pass_time(9)
    assert not asked.done
    meta.pass_time(0.9)
    assert isinstance(asked.error, Unavailable) and "no logd" in asked.error.message
    meta.register()
    meta.apply()
    again = meta.ask(m.CreateTopic("orders", if_not_exists=True))
    assert not again.created and {p.leader for p in again.topic.partitions} == {"n1"}


def test_a_logd_that_registers_meanwhile_confirms(meta: Meta) -> None:
    asked = meta.send(m.CreateTopic("orders"))
    meta.register()
    meta.apply()
    assert asked.answer.created


def test_a_logd_that_does_not_confirm_is_named(led: Meta) -> None:
    asked = led.send(m.CreateTopic("orders"))
    led.pass_time(30)
    assert isinstance(asked.error, TimedOut) and "n1" in asked.error.message


def test_what_exists(led: Meta) -> None:
    topic = led.make("orders")
    with pytest.raises(AlreadyExists):
        led.ask(m.CreateTopic("orders"))
    reply = led.ask(m.CreateTopic("orders", partitions=9, if_not_exists=True))
    assert not reply.created and reply.topic == topic


def test_if_not_exists_waits_for_the_one_who_made_it(led: Meta) -> None:
    first, second = led.send(m.CreateTopic("orders")), led.send(m.CreateTopic("orders", if_not_exists=True))
    assert not second.done
    led.apply()
    assert first.answer.created and not second.answer.created


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "x" * 197, "ü"])
def test_bad_names(led: Meta, name: str) -> None:
    for body in (m.CreateTopic(name), m.AlterTopic(name), m.DeleteTopic(name)):
        with pytest.raises(BadName):
            led.ask(body)


def test_internal_names_belong_to_the_daemons(led: Meta) -> None:
    with pytest.raises(Forbidden):
        led.ask(m.CreateTopic("__mine"))
    led.make("__mine", internal=True)
    for body in (m.AlterTopic("__mine", 5), m.DeleteTopic("__mine"), m.DeleteTopic("__groups", internal=True),
                 m.AlterTopic("__groups", 17, internal=True)):
        with pytest.raises(Forbidden):
            led.ask(body)
    led.send(m.DeleteTopic("__mine", internal=True))
    assert "__mine" not in led.state.ids


def test_a_publish_creates_unless_that_is_off(led: Meta) -> None:
    assert led.make("a", auto=True)
    off = Meta(Defaults(auto_create=False))
    with pytest.raises(UnknownTopic, match="autoCreateTopics is off"):
        off.ask(m.CreateTopic("a", auto=True))
    assert not off.send(m.CreateTopic("a")).error


@pytest.mark.parametrize(("body", "says"), [
    (m.CreateTopic("x", partitions=-1), "partitions is -1: use 1 to 1000"),
    (m.CreateTopic("x", partitions=10_001), "partitions is 10001"),
    (m.CreateTopic("x", replication_factor=3), "replicationFactor is 3: use 1"),
    (m.CreateTopic("x", config={"retention": 1}), "unknown topic setting 'retention'"),
    (m.CreateTopic("x", config={"maxRetries": 0}), "maxRetries is 0: use 1 to"),
])
def test_bad_topics_are_not_made(led: Meta, body: m.CreateTopic, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        led.ask(body)
    assert "x" not in led.state.ids


def test_partitions_and_topics_are_bounded(led: Meta, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PARTITIONS_TOTAL_MAX", 40)
    led.make("a", partitions=8)
    with pytest.raises(Busy, match="40 partitions of 40"):
        led.ask(m.CreateTopic("b", partitions=1))
    with pytest.raises(Busy):
        led.ask(m.AlterTopic("a", partitions=9))
    monkeypatch.setattr(limits, "TOPICS_MAX", 3)
    monkeypatch.setattr(limits, "PARTITIONS_TOTAL_MAX", 400)
    with pytest.raises(Busy, match="3 topics"):
        led.ask(m.CreateTopic("b"))


def test_partitions_spread_over_the_logds(led: Meta) -> None:
    led.register("n2")
    asked = led.send(m.CreateTopic("a", partitions=40))
    leaders = [p.leader for p in led.topic("a").partitions]
    assert (leaders.count("n1"), leaders.count("n2")) == (4, 36)   # n1 led 32 already
    led.apply("n1")
    assert not asked.done
    led.apply("n2")
    assert asked.answer.created


def test_a_dlq_is_as_wide_as_its_topic(led: Meta) -> None:
    led.make("orders", partitions=7)
    assert len(led.make("orders.dlq").partitions) == 7
    assert len(led.make("other.dlq").partitions) == 3


# -- altering ----------------------------------------------------------------------------

def test_settings_change_one_by_one(led: Meta) -> None:
    led.make("orders", config={"maxRetries": 5, "retentionMs": 1000})
    asked = led.send(m.AlterTopic("orders", config={"retentionMs": None, "retentionBytes": 10}))
    assert not asked.done
    led.apply()
    config = led.topic("orders").config
    assert (config.max_retries, config.retention_ms, config.retention_bytes) == (5, 168 * 3_600_000, 10)
    assert asked.answer.topic.config == config


def test_no_change_is_no_new_version(led: Meta) -> None:
    led.make("orders")
    version = led.state.version
    assert led.ask(m.AlterTopic("orders", 3, {"maxRetries": 3})).version <= version == led.state.version


def test_partitions_grow_and_never_shrink_and_keep_their_epochs(led: Meta) -> None:
    before = led.make("orders").partitions
    led.register()
    led.apply()
    led.send(m.AlterTopic("orders", partitions=5))
    topic = led.topic("orders")
    assert [p.epoch for p in topic.partitions] == [2, 2, 2, 1, 1] and topic.id == led.state.ids["orders"]
    assert [p.leader for p in before] == ["n1"] * 3
    with pytest.raises(BadRequest, match="can't be fewer"):
        led.ask(m.AlterTopic("orders", partitions=4))


def test_the_dlq_grows_with_its_topic(led: Meta) -> None:
    led.make("orders"), led.make("orders.dlq", config={"retentionMs": -1})
    asked = led.send(m.AlterTopic("orders", partitions=6))
    assert len(led.topic("orders.dlq").partitions) == 6
    assert led.topic("orders.dlq").config.retention_ms == -1
    assert not asked.done
    led.apply()
    assert asked.answer
    led.send(m.AlterTopic("orders.dlq", partitions=9)), led.apply()
    led.send(m.AlterTopic("orders", partitions=7)), led.apply()
    assert len(led.topic("orders.dlq").partitions) == 9


def test_a_refused_change_changes_nothing(led: Meta) -> None:
    led.make("orders"), led.make("orders.dlq")
    before = led.state.version
    with pytest.raises(BadRequest):
        led.ask(m.AlterTopic("orders", partitions=6, config={"nonsense": 1}))
    assert led.state.version == before


def test_what_is_not_there(led: Meta) -> None:
    for body in (m.AlterTopic("none"), m.DeleteTopic("none")):
        with pytest.raises(UnknownTopic, match="there is no topic none"):
            led.ask(body)


# -- deleting ----------------------------------------------------------------------------

def test_deletion_is_answered_when_the_leaders_did_it(led: Meta) -> None:
    topic = led.make("orders")
    asked = led.send(m.DeleteTopic("orders"))
    assert not asked.done and "orders" not in led.state.ids
    led.apply()
    assert (asked.answer.topic_id, asked.answer.version) == (topic.id, led.state.version)


def test_what_nobody_leads_is_deleted_at_once(meta: Meta) -> None:
    meta.send(m.CreateTopic("orders"))
    assert meta.ask(m.DeleteTopic("orders")).version == meta.state.version


def test_a_name_made_anew_is_another_topic(led: Meta) -> None:
    first = led.make("orders")
    led.send(m.DeleteTopic("orders")), led.apply()
    assert led.make("orders").id != first.id


def test_the_dlq_outlives_its_topic(led: Meta) -> None:
    led.make("orders"), led.make("orders.dlq")
    led.send(m.DeleteTopic("orders")), led.apply()
    assert "orders.dlq" in led.state.ids


def test_an_id_is_never_used_twice(led: Meta) -> None:
    drawn = iter([70, 70, 0, led.topic("__groups").id, 80, 70, 80, 90])
    led.core._new_id = lambda bits: next(drawn)
    assert led.make("a").id == 70
    assert led.make("b").id == 80
    led.send(m.DeleteTopic("a")), led.apply()
    assert led.make("c").id == 90


# -- producers ---------------------------------------------------------------------------

def test_producer_ids_are_unique_and_reserved_in_blocks(meta: Meta) -> None:
    before = len(meta.log)
    ids = [meta.ask(m.InitProducer()).producer_id for _ in range(limits.PRODUCER_IDS_BLOCK + 1)]
    assert len(set(ids)) == len(ids) and min(ids) > 0
    assert len(meta.log) == before + 2
    restarted = Core(Defaults(), lambda bits: 1, replayed(meta))
    assert restarted._next_producer > max(ids)


def test_an_epoch_fences_the_ones_before(meta: Meta) -> None:
    first = meta.ask(m.InitProducer())
    assert first.epoch == 0
    assert meta.ask(m.InitProducer(first.producer_id, 0)).epoch == 1
    assert meta.ask(m.InitProducer(first.producer_id, -1)).epoch == 2      # a takeover needs not know
    for stale in (0, 1, 3):
        with pytest.raises(Fenced, match="at epoch 2"):
            meta.ask(m.InitProducer(first.producer_id, stale))


def test_ids_that_were_never_given_out_are_refused(meta: Meta) -> None:
    meta.ask(m.InitProducer())
    for producer_id in (0, limits.PRODUCER_IDS_BLOCK + 1, 2**62):
        with pytest.raises(BadRequest):
            meta.ask(m.InitProducer(producer_id, -1))


def test_epochs_end(meta: Meta) -> None:
    producer_id = meta.ask(m.InitProducer()).producer_id
    meta.state.apply(entries.ProducerBumped(producer_id, EPOCH_MAX))
    with pytest.raises(Fenced, match="ask for a new id"):
        meta.ask(m.InitProducer(producer_id, EPOCH_MAX))


def test_the_longest_unused_producer_is_forgotten(meta: Meta, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PRODUCER_EPOCHS_MAX", 2)
    a, b, c = (meta.ask(m.InitProducer()).producer_id for _ in range(3))
    for producer_id in (a, b, a, c):
        meta.ask(m.InitProducer(producer_id, -1))
    assert list(meta.state.producer_epochs) == [a, c]


# -- the face ----------------------------------------------------------------------------

def test_requests_of_other_daemons_are_refused(meta: Meta) -> None:
    assert isinstance(meta.send(m.Produce([]), kind=m.Kind.PRODUCE).error, UnknownKind)


def test_what_could_not_be_written_did_not_happen(led: Meta) -> None:
    led.make("kept")
    written = list(led.log)
    kept = led.send(m.AlterTopic("kept", config={"maxRetries": 9}))
    written = list(led.log)
    poll = led.send(m.Metadata(led.state.version, 5_000))
    lost = led.send(m.CreateTopic("lost"))
    assert poll.done
    led.log = written
    led.run(led.core.restore(replayed(led), DiskFull("full")))
    assert isinstance(lost.error, DiskFull) and not kept.done and "lost" not in led.state.ids
    led.apply()
    assert kept.answer.topic.config.max_retries == 9
    assert led.make("lost")


NAMES = st.sampled_from(["a", "b", "a.dlq", "__x", "bad name"])
CONFIGS = st.dictionaries(st.sampled_from(["maxRetries", "retentionMs", "backoffBaseMs", "dlqEnabled", "nonsense"]),
                          st.sampled_from([1, 5, 70_000, True, False, None, "x"]), max_size=2)
REQUESTS = st.one_of(
    st.builds(m.CreateTopic, NAMES, st.integers(-1, 4), st.integers(0, 2), CONFIGS, st.booleans(), st.booleans(), st.booleans()),
    st.builds(m.AlterTopic, NAMES, st.integers(-1, 6), CONFIGS, st.booleans()),
    st.builds(m.DeleteTopic, NAMES, st.booleans()),
    st.builds(m.InitProducer, st.integers(-1, 4), st.integers(-1, 2)),
    st.builds(m.Register, st.sampled_from(["n1", "n2"]), st.sampled_from(["logd", "groupd"]), st.just(["ipc:///x"])),
    st.builds(m.Metadata, st.integers(0, 12), st.sampled_from([0, 1_000]), st.none(), st.sampled_from(["", "n1", "n2"])),
)


@settings(max_examples=150)
@given(st.lists(st.tuples(REQUESTS, st.sampled_from([0.0, 0.5, 40.0])), max_size=30))
def test_whatever_is_asked_the_log_adds_up_and_everyone_is_answered(steps: list[tuple[Any, float]]) -> None:
    meta, asked, epochs, known = Meta(), [], {}, 0
    follower: dict[int, m.TopicMeta] = {}
    for body, seconds in steps:
        asked.append(meta.send(body))
        meta.pass_time(seconds)
        version = meta.state.version
        news = meta.ask(m.Metadata(known))
        assert news.version == version >= known
        if news.full:
            follower.clear()
        follower |= {topic.id: topic for topic in news.topics}
        for topic_id in news.deleted:
            follower.pop(topic_id, None)
        known = version
        assert follower == meta.state.topics                    # following differences ends where everything is
        for topic in follower.values():
            for i, partition in enumerate(topic.partitions):
                assert partition.epoch >= epochs.get((topic.id, i), 0)
                epochs[topic.id, i] = partition.epoch
    meta.pass_time(120)
    assert all(one.done for one in asked) and meta.core.next_deadline() is None
    state, again = meta.state, replayed(meta)
    assert again.snapshot() == state.snapshot()
    through_snapshot = State.of(entries.decode_snapshot(entries.encode_snapshot(state.snapshot())))
    assert msgspec.to_builtins(through_snapshot.snapshot()) == msgspec.to_builtins(state.snapshot())
    assert through_snapshot.ids == state.ids
