"""Keys in metad: made once, never kept, spread to who follows, revoked everywhere."""

from typing import Any

import pytest

from gq_metad import entries
from gq_metad.spread import SPREAD_S
from gq_metad.state import State
from gq_proto import keys, limits
from gq_proto import messages as m
from gq_proto.access import Access, Keyring
from gq_proto.errors import AlreadyExists, BadName, BadRequest, Busy, DiskFull, Forbidden, NotFound, Unauthorized
from gq_proto.messages import Scope
from tests.unit.gq_metad.conftest import Asked, Meta

PUBLISH = [Scope("publish", "orders.*", "")]
CURVE = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
OTHER_CURVE = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"


def create(meta: Meta, name: str = "app", **fields: Any) -> m.CreateKeyReply:
    fields.setdefault("scopes", PUBLISH)
    return meta.ask(m.CreateKey(name, **fields))                          # type: ignore[no-any-return]


def follow(meta: Meta, who: str, version: int | None = None, wait_ms: int = 10_000) -> Asked:
    known = meta.state.version if version is None else version
    return meta.send(m.Metadata(known, wait_ms, keys=True, follower=who), peer=who.encode())


def restarted(meta: Meta, *, through_snapshot: bool) -> State:
    state = State()
    for entry in entries.decode(entries.encode(meta.log)):
        state.apply(entry)
    return State.of(entries.decode_snapshot(entries.encode_snapshot(state.snapshot()))) if through_snapshot else state


# -- making one -----------------------------------------------------------------------------

def test_a_key_is_shown_once_and_kept_as_a_hash(meta: Meta) -> None:
    made = create(meta)
    assert made.key.name == "app" and made.key.scopes == PUBLISH and (made.key.salt, made.key.hash) == (b"", b"")
    id, secret = keys.split(made.token.encode()) or ("", b"")
    assert id == made.key.id
    kept = meta.state.keys[id]
    assert kept.hash == keys.hash_of(made.token, kept.salt) and kept.created_us == 7_000_000
    assert secret not in entries.encode(meta.log) and secret not in entries.encode_snapshot(meta.state.snapshot())


def test_two_keys_have_nothing_in_common(meta: Meta) -> None:
    first, second = create(meta), create(meta, "other")
    one, two = meta.state.keys[first.key.id], meta.state.keys[second.key.id]
    assert first.token != second.token and one.salt != two.salt and one.hash != two.hash


@pytest.mark.parametrize(("body", "error"), [
    (m.CreateKey("app/1", PUBLISH), BadName), (m.CreateKey("", PUBLISH), BadName), (m.CreateKey("app", []), BadRequest),
    (m.CreateKey("app", [Scope("read")]), BadRequest), (m.CreateKey("app", [Scope("publish", "a/b")]), BadRequest),
    (m.CreateKey("app", PUBLISH * 101), BadRequest), (m.CreateKey("app", PUBLISH, expires_us=7_000_000), BadRequest),
    (m.CreateKey("app", PUBLISH, expires_us=-1), BadRequest), (m.CreateKey("app", PUBLISH, expires_us=2**60), BadRequest),
    (m.CreateKey("app", [], node=True), BadRequest), (m.CreateKey("app", PUBLISH, curve="short"), BadRequest)])
def test_bad_keys_are_refused_with_a_reason(meta: Meta, body: m.CreateKey, error: type[Exception]) -> None:
    with pytest.raises(error):
        meta.ask(body)
    assert not meta.state.keys


def test_a_name_is_used_once_at_a_time(meta: Meta) -> None:
    create(meta)
    with pytest.raises(AlreadyExists):
        create(meta)
    meta.ask(m.RevokeKey("app"))
    create(meta)


def test_there_is_an_end_to_keys(meta: Meta, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "KEYS_MAX", 1)
    create(meta)
    with pytest.raises(Busy):
        create(meta, "more")


def test_a_curve_key_has_no_token_and_one_owner(meta: Meta) -> None:
    made = create(meta, curve=CURVE)
    assert made.token == "" and made.key.curve == CURVE and not made.key.node
    with pytest.raises(AlreadyExists):
        create(meta, "again", curve=CURVE)


# -- finding it -----------------------------------------------------------------------------

def test_listed_keys_have_nothing_to_check_them_by(meta: Meta) -> None:
    create(meta), create(meta, "node-b", scopes=[], curve=CURVE, node=True)
    listed = meta.ask(m.ListKeys()).keys
    assert [(key.name, key.node) for key in listed] == [("app", False), ("node-b", True)]
    assert all(key.salt == key.hash == b"" for key in listed)


def test_whose_token(meta: Meta) -> None:
    made = create(meta, expires_us=8_000_000)
    assert meta.ask(m.CheckKey(made.token.encode())).key == made.key
    for wrong in (b"", b"x", made.token[:-1].encode() + b"!", keys.make_token(made.key.id, 2**200).encode()):
        with pytest.raises(Unauthorized):
            meta.ask(m.CheckKey(wrong))


@pytest.mark.parametrize("by", ["id", "name"])
def test_a_revoked_key_is_gone(meta: Meta, by: str) -> None:
    made = create(meta)
    assert meta.ask(m.RevokeKey(getattr(made.key, by))).key == made.key
    assert not meta.state.keys
    with pytest.raises(Unauthorized):
        meta.ask(m.CheckKey(made.token.encode()))
    with pytest.raises(NotFound):
        meta.ask(m.RevokeKey(made.key.id))


@pytest.mark.parametrize("through_snapshot", [False, True])
def test_keys_outlive_a_restart_and_so_does_a_revocation(meta: Meta, through_snapshot: bool) -> None:
    kept, revoked = create(meta), create(meta, "gone")
    meta.ask(m.RevokeKey("gone"))
    state = restarted(meta, through_snapshot=through_snapshot)
    assert state.keys == meta.state.keys and state.keys_version == meta.state.keys_version
    ring = Keyring()
    ring.take(state.keys.values())
    assert ring.of_token(kept.token.encode(), 0).name == "app"
    with pytest.raises(Unauthorized):
        ring.of_token(revoked.token.encode(), 0)


def test_logs_of_before_keys_are_read() -> None:
    import msgspec
    old = msgspec.msgpack.encode([[4, "n1", "logd", ["ipc:///x"]]])
    assert entries.decode(old) == [entries.DaemonRegistered("n1", "logd", ["ipc:///x"])]
    whole = msgspec.msgpack.decode(entries.encode_snapshot(State().snapshot()))
    assert State.of(entries.decode_snapshot(msgspec.msgpack.encode(whole[:-2]))).keys == {}


# -- spreading it ---------------------------------------------------------------------------

def test_followers_get_keys_when_they_ask_and_any_changed(led: Meta) -> None:
    made = create(led)
    first = follow(led, "logd/n1", 0).answer
    assert [key.id for key in first.keys] == [made.key.id] and first.keys[0].hash
    parked = follow(led, "logd/n1")
    led.make("t")
    assert parked.answer.keys is None and [topic.name for topic in parked.answer.topics] == ["t"]
    parked = follow(led, "logd/n1")
    led.send(m.RevokeKey("app"))
    assert parked.answer.keys == []
    assert led.ask(m.Metadata(0)).keys is None                    # who does not ask is not told


def test_a_change_is_answered_when_every_follower_has_it(led: Meta) -> None:
    led.register("n1", "groupd", b"groupd/n1")
    for who in ("logd/n1", "groupd/n1"):
        follow(led, who)
    asked = led.send(m.CreateKey("app", PUBLISH))
    assert not asked.done
    follow(led, "logd/n1")
    assert not asked.done
    follow(led, "groupd/n1")
    assert asked.answer.unconfirmed == [] and asked.answer.token


def test_who_says_nothing_holds_up_a_change_for_a_while_and_is_named(led: Meta) -> None:
    led.register("n1", "groupd", b"groupd/n1")
    follow(led, "groupd/n1"), follow(led, "logd/n1")
    asked = led.send(m.RevokeKey(create_later(led).id))
    follow(led, "logd/n1")
    led.pass_time(SPREAD_S - 0.01)
    assert not asked.done and led.core.next_deadline() is not None
    led.pass_time(0.02)
    assert asked.answer.unconfirmed == ["groupd/n1"]


def create_later(meta: Meta) -> m.KeyMeta:
    asked = meta.send(m.CreateKey("app", PUBLISH))
    meta.pass_time(SPREAD_S)
    for who in ("logd/n1", "groupd/n1"):
        follow(meta, who)
    key: m.KeyMeta = asked.answer.key
    return key


def test_who_was_not_heard_of_for_long_holds_nothing_up(led: Meta) -> None:
    follow(led, "logd/n1")
    led.pass_time(1000)
    assert create(led).unconfirmed == []


def test_a_short_patience_is_kept(led: Meta) -> None:
    follow(led, "logd/n1")
    asked = led.send(m.CreateKey("app", PUBLISH), patience=0.5)
    led.pass_time(0.46)
    assert asked.answer.unconfirmed == ["logd/n1"]


def test_a_refused_log_makes_no_key(led: Meta) -> None:
    follow(led, "logd/n1")
    before = restarted(led, through_snapshot=False)
    asked = led.send(m.CreateKey("app", PUBLISH))
    led.run(led.core.restore(before, DiskFull("full")))
    assert isinstance(asked.error, DiskFull) and not led.state.keys
    follow(led, "logd/n1")                                        # nothing left to answer


def test_a_follower_that_came_back_on_another_line_is_up(led: Meta) -> None:
    led.pass_time(1000)
    assert not led.core.up(led.now)["logd", "n1"]
    follow(led, "logd/n1")
    assert led.core.up(led.now)["logd", "n1"]
    assert not follow(led, "logd/unknown").done and ("logd", "unknown") not in led.core.up(led.now)


# -- nodes ----------------------------------------------------------------------------------

def test_a_node_that_registers_here_is_known_by_its_curve_key(meta: Meta) -> None:
    for _ in range(2):
        meta.send(m.Register("n1", "logd", ["ipc:///x", "tcp://h:1"], CURVE))
    (key,) = meta.state.keys.values()
    assert (key.name, key.curve, key.node, key.scopes) == ("n1", CURVE, True, [])
    assert meta.state.daemons["logd", "n1"].curve == CURVE
    assert [daemon.curve for daemon in meta.ask(m.Metadata(0)).daemons] == [CURVE]


def test_its_name_gives_way_to_a_key_that_has_it(meta: Meta) -> None:
    create(meta, "n1")
    meta.send(m.Register("n1", "logd", ["ipc:///x"], CURVE))
    assert sorted(key.node for key in meta.state.keys.values()) == [False, True]
    assert len({key.name for key in meta.state.keys.values()}) == 2


def test_a_node_from_elsewhere_gives_no_other_key_than_its_own(meta: Meta) -> None:
    access = Access(create(meta, "n2", scopes=[], curve=CURVE, node=True).key)
    asked = Asked(m.Register("n2", "logd", ["tcp://h:1"], OTHER_CURVE), meta.now + 30, b"q", m.Kind.REGISTER, access)
    meta.run(meta.core.step(meta.now, 7_000_000, asked))
    assert isinstance(asked.error, Forbidden) and not meta.state.daemons
    for curve in ("", CURVE):                                    # "": it listens nowhere
        asked = Asked(m.Register("n2", "logd", ["tcp://h:1"], curve), meta.now + 30, b"q", m.Kind.REGISTER, access)
        meta.run(meta.core.step(meta.now, 7_000_000, asked))
        assert asked.answer and meta.state.daemons["logd", "n2"].curve == curve
    assert len(meta.state.keys) == 1


def test_a_bad_curve_key_does_not_register(meta: Meta) -> None:
    with pytest.raises(BadRequest):
        meta.ask(m.Register("n1", "logd", ["ipc:///x"], "short"))
