"""Keys to access, and which right each kind of request needs."""

import hmac

import pytest

from gq_proto import keys
from gq_proto import messages as m
from gq_proto.access import ANY, Access, Keyring
from gq_proto.errors import Forbidden, Unauthorized, UnknownTopicId
from gq_proto.keys import ADMIN, CONSUME, PUBLISH
from gq_proto.messages import KeyMeta, Kind
from gq_proto.rights import RIGHTS, check, shown

NAMES = {1: "orders.eu", 2: "secret", 9: "__groups"}
TOKEN = keys.make_token("0123456789ab", 1)
SALT = b"s" * 16


def key(*scopes: str, **fields) -> KeyMeta:
    made = [scope for text in scopes for scope in keys.parse_scopes(text)]
    return KeyMeta("0123456789ab", "k", made, 0, salt=SALT, hash=keys.hash_of(TOKEN, SALT), **fields)


def access(*scopes: str, **fields) -> Access:
    return Access(key(*scopes, **fields))


def ring(*all_keys: KeyMeta) -> Keyring:
    made = Keyring()
    made.take(all_keys)
    return made


# -- whose token ---------------------------------------------------------------------------

def test_a_token_gives_the_access_of_its_key():
    assert ring(key("publish")).of_token(TOKEN.encode(), 5).may(PUBLISH, "orders")


@pytest.mark.parametrize("token", [b"", b"nonsense", keys.make_token("0123456789ab", 2).encode(),
                                   keys.make_token("ba9876543210", 1).encode()])
def test_any_other_token_gives_none(token):
    with pytest.raises(Unauthorized) as refused:
        ring(key("publish")).of_token(token, 5)
    assert "0123456789ab" not in refused.value.message and "Unauthorized" not in refused.value.message


def test_wrong_secret_unknown_key_and_expired_key_read_the_same():
    told = set()
    for keyring, token in ((ring(key("publish")), keys.make_token("0123456789ab", 2)), (ring(), TOKEN),
                           (ring(key("publish", expires_us=5)), TOKEN)):
        with pytest.raises(Unauthorized) as refused:
            keyring.of_token(token.encode(), 5)
        told.add(refused.value.message)
    assert len(told) == 1


def test_a_wrong_secret_takes_as_long_as_an_unknown_key_or_no_key_at_all(monkeypatch):
    """By the work that is done: one hash and one comparison that does not stop at the first difference, whatever came."""
    work = []
    hashed, compared = keys._hash, hmac.compare_digest
    monkeypatch.setattr(keys, "_hash", lambda secret, salt: work.append("hash") or hashed(secret, salt))
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: work.append(("compare", len(a), len(b))) or compared(a, b))
    found = []
    for number, secret in ((1, 1), (1, 2), (99, 1)):
        token = keys.make_token(f"{number:012x}", secret)
        found.append(token.encode())
    ring_of_one = ring(KeyMeta(f"{1:012x}", "a", [], 0, salt=b"s" * 16, hash=hashed(keys.split(found[0])[1], b"s" * 16)))
    for token in (*found, b"", b"gq_", b"nonsense" * 100):
        work.clear()
        if token == found[0]:
            ring_of_one.of_token(token, 0)
        else:
            with pytest.raises(Unauthorized):
                ring_of_one.of_token(token, 0)
        assert work == ["hash", ("compare", 32, 32)], token


def test_a_key_ends_when_it_expires():
    keyring = ring(key("publish", expires_us=5))
    assert not keyring.of_token(TOKEN.encode(), 4).expired(4)
    assert keyring.of_token(TOKEN.encode(), 4).expired(5)


def test_a_curve_key_that_is_known_gives_access_and_another_does_not():
    keyring = ring(KeyMeta("1", "n2", [], 0, curve="c" * 40, node=True))
    assert keyring.of_curve("c" * 40, 5).node
    with pytest.raises(Unauthorized):
        keyring.of_curve("d" * 40, 5)
    with pytest.raises(Unauthorized):
        keyring.of_curve("", 5)


# -- scopes --------------------------------------------------------------------------------

def test_one_scope_must_cover_topic_and_group_together():
    mixed = access("consume:a:g1", "consume:b:g2")
    assert mixed.may(CONSUME, "a", "g1") and mixed.may(CONSUME, "b", "g2")
    assert not mixed.may(CONSUME, "a", "g2") and not mixed.may(CONSUME, "b", "g1")


def test_verbs_do_not_imply_each_other():
    assert not access("admin").may(PUBLISH, "a") and not access("admin").may(CONSUME, "a")
    assert not access("publish").may(CONSUME, "a")
    assert access("publish:a").sees("a") and not access("publish:a").sees("b")
    assert access("publish:a").may(ANY, "a") and not access().may(ANY, "a")


def test_internal_topics_only_by_name():
    assert not access("all").may(CONSUME, "__groups")
    assert access("consume:__groups").may(CONSUME, "__groups")


def test_who_owns_all():
    assert access("admin").owns_all() and access("all").owns_all() and access(node=True).owns_all()
    assert not access("admin:*:a").owns_all() and not access("admin:a").owns_all() and not access("publish").owns_all()


def test_who_reads_metrics():
    for one in (access("metrics"), access("admin"), access("publish:a", "metrics"), access(node=True)):
        one.need_metrics()
    for one in (access("admin:a"), access("consume"), access()):
        with pytest.raises(Forbidden):
            one.need_metrics()
    assert not access("metrics").may(ANY) and not access("metrics").owns_all()


def test_a_refusal_is_the_same_for_what_exists_and_what_does_not():
    told = set()
    for topic in ("secret", "no-such-topic"):
        with pytest.raises(Forbidden) as refused:
            access("publish:orders").need(PUBLISH, topic)
        told.add(refused.value.message)
    assert len(told) == 1


# -- requests ------------------------------------------------------------------------------

ALLOWED = [
    ("publish:orders.*", Kind.PRODUCE, 0, m.Produce([m.ProducePart(1, 0)])),
    ("publish:orders.*", Kind.INIT_PRODUCER, 0, m.InitProducer()),
    ("publish:orders.*", Kind.CREATE_TOPIC, 0, m.CreateTopic("orders.us", auto=True)),
    ("publish:orders.*", Kind.CANCEL_DELAYED, 1, m.CancelDelayed([])),
    ("consume:orders.*", Kind.FETCH, 0, m.Fetch([m.FetchPart(1, 0)])),
    ("consume:orders.*", Kind.WATCH, 0, m.Watch([m.WatchPart(1, 0)])),
    ("consume:orders.*", Kind.RUNS, 1, m.Runs(0)),
    ("consume:orders.*", Kind.OFFSET_FOR_TIME, 1, m.OffsetForTime(0)),
    ("consume:orders.*:billing", Kind.JOIN, 0, m.Join("billing", topics=["orders.eu"])),
    ("consume:orders.*:billing", Kind.POLL, 0, m.Poll("billing", "x", 1)),
    ("consume:orders.*:billing", Kind.SETTLE, 0, m.Settle("billing", "x", [])),
    ("consume:orders.*:billing", Kind.SETTLE_RECEIPTS, 0, m.SettleReceipts([m.Receipt1(0, "orders.eu", 0, 0, 1, 1, 1, 1)])),
    ("consume:orders.*:billing", Kind.MARK, 0, m.Mark("billing", [m.Mark1(1, 0, True, 0, 5)])),
    ("consume:orders.*:billing", Kind.DESCRIBE_GROUP, 0, m.DescribeGroup("billing")),
    ("admin:orders.*", Kind.CREATE_TOPIC, 0, m.CreateTopic("orders.us")),
    ("admin:orders.*", Kind.ALTER_TOPIC, 0, m.AlterTopic("orders.eu")),
    ("admin:orders.*", Kind.DELETE_TOPIC, 0, m.DeleteTopic("orders.eu")),
    ("admin:orders.*", Kind.DELETE_BEFORE, 1, m.DeleteBefore(-1)),
    ("admin:*:billing", Kind.DELETE_GROUP, 0, m.DeleteGroup("billing")),
    ("admin:*:billing", Kind.PAUSE, 0, m.Pause("billing", True)),
    ("admin", Kind.CREATE_KEY, 0, m.CreateKey("k", [])),
    ("admin", Kind.LIST_KEYS, 0, m.ListKeys()),
    ("admin", Kind.REVOKE_KEY, 0, m.RevokeKey("k")),
    ("publish:x", Kind.STATUS, 0, m.Empty()),
    ("publish:x", Kind.METADATA, 0, m.Metadata()),
    ("publish:x", Kind.LIST_GROUPS, 0, m.ListGroups()),
    ("publish:x", Kind.PARTITIONS, 0, m.Partitions()),
    ("consume:orders.*", Kind.DUE, 1, m.Due(0)),
    ("consume:orders.*", Kind.LIST_DELAYED, 1, m.ListDelayed()),
    ("consume:orders.*", Kind.DELAY_STATS, 1, m.DelayStats()),
    ("publish:x", Kind.DELAY_STATS, 0, m.DelayStats()),
    ("consume:orders.*", Kind.END_OF_EPOCH, 1, m.EndOfEpoch(0)),
    ("consume:orders.*:billing", Kind.LEAVE, 0, m.Leave("billing", "x")),
    ("consume:orders.*:billing", Kind.HEARTBEAT, 0, m.Heartbeat("billing", "x", 1)),
]


@pytest.mark.parametrize(("scope", "kind", "topic_id", "body"), ALLOWED)
def test_the_right_scope_lets_through(scope, kind, topic_id, body):
    check(access(scope), kind, topic_id, body, NAMES.get)


@pytest.mark.parametrize(("scope", "kind", "topic_id", "body"), [one for one in ALLOWED if "x" not in one[0]])
def test_every_narrower_key_is_refused(scope, kind, topic_id, body):
    verb = scope.partition(":")[0]
    others = [text for text in ("publish:x", "consume:x:y", "admin:x:y") if not (text.startswith("publish") and
                                                                               kind == Kind.INIT_PRODUCER)]
    others += [f"{other}:*:*" for other in (PUBLISH, CONSUME, ADMIN) if other != verb
               and kind not in (Kind.DESCRIBE_GROUP, Kind.DELAY_STATS)]
    for other in others:
        with pytest.raises(Forbidden):
            check(access(other), kind, topic_id, body, NAMES.get)


FOR_DAEMONS = [
    (Kind.REGISTER, m.Register("n", "logd", [])), (Kind.WRITE_MARKER, m.WriteMarker(1, b"")), (Kind.CHECK_KEY, m.CheckKey(b"")),
    (Kind.PRODUCE, m.Produce([m.ProducePart(1, 0)], internal=True)), (Kind.METADATA, m.Metadata(keys=True)),
    (Kind.INIT_PRODUCER, m.InitProducer(5, 0)),
    (Kind.METADATA, m.Metadata(applied_by="n")), (Kind.METADATA, m.Metadata(follower="logd/n")),
    (Kind.CREATE_TOPIC, m.CreateTopic("x", internal=True)), (Kind.ALTER_TOPIC, m.AlterTopic("x", internal=True)),
    (Kind.DELETE_TOPIC, m.DeleteTopic("x", internal=True)), (Kind.REPLICA_FETCH, m.Empty()), (139, m.Empty())]


@pytest.mark.parametrize(("kind", "body"), FOR_DAEMONS)
def test_what_is_for_daemons_is_open_to_no_key_but_a_nodes(kind, body):
    with pytest.raises(Forbidden):
        check(access("all", "all:__*:*"), kind, 1, body, NAMES.get)
    check(access(node=True), kind, 1, body, NAMES.get)


def test_every_kind_has_its_right_and_a_test():
    assert RIGHTS.keys() == set(Kind) - {Kind.ASSIGNED}
    tested = {kind for _, kind, _, _ in ALLOWED} | {kind for kind, _ in FOR_DAEMONS}
    assert tested - {139} == RIGHTS.keys()


def test_every_part_of_a_request_counts():
    produce = m.Produce([m.ProducePart(1, 0), m.ProducePart(2, 0)])
    with pytest.raises(Forbidden):
        check(access("publish:orders.*"), Kind.PRODUCE, 0, produce, NAMES.get)
    with pytest.raises(Forbidden):
        check(access("consume:orders.*:g"), Kind.JOIN, 0, m.Join("g", topics=["orders.eu", "secret"]), NAMES.get)


def test_an_id_that_nobody_knows_is_said_to_be_unknown():
    with pytest.raises(UnknownTopicId):
        check(access("publish:x"), Kind.PRODUCE, 0, m.Produce([m.ProducePart(77, 0)]), NAMES.get)


def test_daemons_state_is_not_read_with_a_star():
    with pytest.raises(Forbidden):
        check(access("all"), Kind.FETCH, 0, m.Fetch([m.FetchPart(9, 0)]), NAMES.get)


# -- replies -------------------------------------------------------------------------------

def topic(name: str, id: int) -> m.TopicMeta:
    return m.TopicMeta(name, id, m.TopicConfig(), [])


def test_metadata_names_only_what_the_key_has_to_do_with():
    reply = m.MetadataReply(3, [topic("orders.eu", 1), topic("secret", 2), topic("__groups", 9)], [], [], "c", True, [key()])
    seen = shown(access("publish:orders.*"), Kind.METADATA, reply)
    assert [t.name for t in seen.topics] == ["orders.eu", "__groups"] and seen.keys is None
    assert len(reply.topics) == 3 and reply.keys                  # the next caller's is whole
    assert shown(access(node=True), Kind.METADATA, reply) is reply


def test_listings_leave_out_what_is_not_the_keys():
    groups = m.ListGroupsReply([m.GroupSummary("billing", "shared", 1, ["orders.eu", "secret"], False, 0),
                                m.GroupSummary("other", "shared", 1, ["orders.eu"], False, 0)])
    seen = shown(access("consume:orders.*:billing"), Kind.LIST_GROUPS, groups)
    assert [(group.group, group.topics) for group in seen.groups] == [("billing", ["orders.eu"])]
    sizes = m.PartitionsReply([m.PartitionInfo(1, "orders.eu", 0, 1, True, True, 0, 0, 0, 0, 1),
                               m.PartitionInfo(2, "secret", 0, 1, True, True, 0, 0, 0, 0, 1)])
    assert [part.topic for part in shown(access("admin:orders.*"), Kind.PARTITIONS, sizes).partitions] == ["orders.eu"]


def test_a_groups_other_topics_are_left_out():
    where = m.Assigned(2, "secret", 0, 1)
    member = m.MemberInfo("m", "c", 1, 1, ["secret", "orders.eu"], [where], 0)
    info = m.GroupInfo("billing", 1, "shared", 1, False, [member], [m.GroupPartition("secret", 2, 0, "", 0, 0, 0, 0, 0, 0, [])],
                       ["orders.eu", "secret"])
    seen = shown(access("consume:orders.*:billing"), Kind.DESCRIBE_GROUP, info)
    assert "secret" not in repr(seen)
