"""Guarded listeners: who gets in, what they see, and what happens to those whose key is revoked; CURVE keys and their file."""

import logging
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from gq_proto import keys
from gq_proto import messages as m
from gq_proto.errors import BadConfig, Forbidden, GoQueueError, Unauthorized, Unavailable, UnknownKind
from gq_proto.messages import KeyMeta, Kind
from gq_run import curve, paths
from gq_run import daemon as d
from gq_run.caller import Caller
from gq_run.daemon import Daemon
from gq_run.loop import Loop
from gq_run.options import Config
from gq_run.security import CACHED_MAX, Guard, Verifier, check, check_any, needs_keys
from gq_run.server import Incoming, Server
from gq_run.settings import SHARED

Context = zmq.Context[zmq.Socket[bytes]]
TurnUntil = Callable[[Callable[[], Any]], None]
SALT = b"s" * 16
SERVER, CLIENT, NODE = zmq.curve_keypair(), zmq.curve_keypair(), zmq.curve_keypair()
LOG = logging.getLogger("goqueue.test")


def token(number: int) -> str:
    return keys.make_token(f"{number:012x}", 2**200 + number)


def key(number: int, *scopes: str, **fields: Any) -> KeyMeta:
    made = [scope for text in scopes for scope in keys.parse_scopes(text)]
    return KeyMeta(f"{number:012x}", f"k{number}", made, 0, salt=SALT, hash=keys.hash_of(token(number), SALT), **fields)


def told(*all_keys: KeyMeta, version: int = 1) -> m.MetadataReply:
    return m.MetadataReply(version, [], [], [], keys=list(all_keys))


PUBLISHER, NODE_KEY = key(1, "publish:orders.*"), KeyMeta("n", "n2", [], 0, curve=NODE[0].decode(), node=True)


# -- the verifier -----------------------------------------------------------------------------

class Clock:
    now = 1_000

    def __call__(self) -> int:
        return self.now


def test_before_the_first_word_of_keys_nobody_is_judged() -> None:
    verifier = Verifier()
    with pytest.raises(Unavailable):
        verifier.access(token(1))
    verifier.take(m.MetadataReply(1, [], [], []))
    assert not verifier.known
    verifier.take(told(PUBLISHER))
    assert verifier.access(token(1)).name == "k1" and verifier.access(token(1).encode()).name == "k1"
    assert verifier.version == 1


@pytest.mark.parametrize("wrong", ["", "x", token(2), token(1)[:-1] + "A", token(1) + " ", "gq_\udcff", "ü" * 60])
def test_what_is_no_key_is_refused(wrong: str) -> None:
    verifier = Verifier()
    verifier.take(told(PUBLISHER))
    with pytest.raises(Unauthorized):
        verifier.access(wrong)


def test_what_is_remembered_goes_with_the_keys_and_with_time() -> None:
    clock = Clock()
    verifier = Verifier(clock)
    verifier.take(told(key(1, "publish", expires_us=2_000)))
    assert verifier.access(token(1)) is verifier.access(token(1))
    before = verifier.round
    verifier.take(m.MetadataReply(2, [], [], []))
    assert verifier.round == before                              # no news of keys
    clock.now = 2_000
    with pytest.raises(Unauthorized):
        verifier.access(token(1))
    clock.now = 1_000
    assert verifier.access(token(1))
    verifier.take(told())
    assert verifier.round == before + 1
    with pytest.raises(Unauthorized):
        verifier.access(token(1))


def test_a_token_counts_before_the_curve_key_it_comes_by() -> None:
    verifier = Verifier()
    verifier.take(told(PUBLISHER, NODE_KEY))
    assert verifier.access("", NODE_KEY.curve).node
    assert not verifier.access(token(1), NODE_KEY.curve).node
    with pytest.raises(Unauthorized):
        verifier.access(token(9), NODE_KEY.curve)                # a wrong token is not made good by it


def test_the_remembered_are_bounded() -> None:
    verifier = Verifier()
    verifier.take(told(PUBLISHER))
    for number in range(CACHED_MAX + 5):
        verifier.access(token(1), f"curve {number}")
    assert len(verifier._known) <= CACHED_MAX


# -- which listeners ---------------------------------------------------------------------------

def config(**options: Any) -> Config:
    return Config(SHARED, {key.replace("__", "."): value for key, value in options.items()})


@pytest.mark.parametrize(("address", "public"), [
    ("127.0.0.1:1", False), ("localhost:1", False), ("[::1]:1", False), (":1", True), ("0.0.0.0:1", True), ("[::]:1", True),
    ("10.1.2.3:1", True), ("example.org:1", True), ("127.0.0.1.example.org:1", True), ("*:1", True)])
def test_public_listeners_want_keys(address: str, public: bool) -> None:
    for key in ("broker.listeners.logd", "metrics.listeners.logd"):
        at = {key.replace(".", "__"): address}
        assert needs_keys(config(**at), key) is public
        assert needs_keys(config(**at, security__require="tcp"), key)
        assert not needs_keys(config(**at, security__require="tcp", security__insecure=True), key)
        assert needs_keys(config(**at, metrics__open=True), key) is (public and key.startswith("broker"))


def test_a_public_listener_is_refused_while_no_key_was_made() -> None:
    verifier, option = Verifier(), "broker.listeners.logd"
    public = config(broker__listeners__logd=":7410")
    check_any(public, option, verifier)                          # nobody knows yet
    verifier.take(told(NODE_KEY))
    with pytest.raises(BadConfig, match=r"broker\.listeners\.logd: ':7410' .*gqctl key create"):
        check_any(public, option, verifier, NODE_KEY.curve)      # only this node's own
    with pytest.raises(BadConfig):
        check_any(public, option, verifier)                      # where none is known by a CURVE key
    check_any(public, option, verifier, "another")
    check_any(config(broker__listeners__logd=":7410", security__insecure=True), option, verifier, NODE_KEY.curve)
    check_any(config(security__require="tcp"), option, verifier, NODE_KEY.curve)
    verifier.take(told(NODE_KEY, PUBLISHER))
    check_any(public, option, verifier, NODE_KEY.curve)
    check_any(public, option, verifier)


def test_metads_key_is_checked() -> None:
    check(config()), check(config(security__metadKey=NODE_KEY.curve))
    with pytest.raises(BadConfig, match=r"security\.metadKey"):
        check(config(security__metadKey="short"))


# -- the door ------------------------------------------------------------------------------------

class Door:
    """A guarded server that knows two topics; what was let in is kept and answered at once, or later."""

    def __init__(self, loop: Loop, context: Context) -> None:
        self.came: list[Incoming] = []
        self.answer: Callable[[Incoming], Any] = lambda incoming: incoming.reply(m.InitProducerReply(1, 0))
        self.zap = curve.Zap(loop, context)
        self.guard = Guard(SERVER, LOG, {1: "orders.eu", 2: "secret"}.get)
        self.guard.verifier.take(told(PUBLISHER, NODE_KEY))
        self.server = Server(loop, context, self.handle)
        self.endpoint = self.server.bind("tcp://127.0.0.1:0", self.guard)

    def handle(self, incoming: Incoming) -> None:
        self.came.append(incoming)
        self.answer(incoming)


@pytest.fixture
def door(loop: Loop, context: Context) -> Iterator[Door]:
    made = Door(loop, context)
    yield made
    made.zap.close()
    made.server.close()


@pytest.fixture
def ask(loop: Loop, door: Door, turn_until: TurnUntil) -> Iterator[Callable[..., Any]]:
    """The reply's body, or its error; over a connection of its own with CURVE."""
    clients: Context = zmq.Context()
    made: list[Caller] = []

    def ask(kind: Kind, body: m.Body, key: str = "", pair: tuple[bytes, bytes] = CLIENT, endpoint: str = "", wait: bool = True,
            **envelope: Any) -> Any:
        caller = Caller(loop, clients, endpoint or door.endpoint, key.encode(), SERVER[0].decode(), pair)
        made.append(caller)
        turn_until(lambda: caller.connected)
        results: list[Any] = []
        caller.call(kind, body, lambda reply, frames, error: results.append(error or reply), [b"payload"], **envelope)
        if not wait:
            return results
        turn_until(lambda: results)
        return results[0]

    yield ask
    for caller in made:
        caller.close()
    clients.destroy(linger=0)


PRODUCE = m.Produce([m.ProducePart(1, 0)])


def test_a_key_lets_in_to_what_it_is_for(door: Door, ask: Callable[..., Any]) -> None:
    assert ask(Kind.INIT_PRODUCER, m.InitProducer(), token(1)) == m.InitProducerReply(1, 0)
    incoming = door.came[0]
    assert incoming.access and incoming.access.name == "k1" and incoming.curve == CLIENT[0].decode()


@pytest.mark.parametrize("key", ["", "nonsense", token(2)])
def test_without_a_key_nothing_is_handed_over(door: Door, ask: Callable[..., Any], key: str) -> None:
    for kind, body in ((Kind.STATUS, m.Empty()), (Kind.INIT_PRODUCER, m.InitProducer()), (Kind.METADATA, m.Metadata())):
        assert isinstance(ask(kind, body, key), Unauthorized)
    assert not door.came and door.guard.unauthorized == 3


def test_the_wrong_topic_is_forbidden_whether_it_exists_or_not(door: Door, ask: Callable[..., Any]) -> None:
    door.answer = lambda incoming: incoming.reply(m.ProduceReply([]))
    assert ask(Kind.PRODUCE, PRODUCE, token(1)) == m.ProduceReply([])
    refusals = [ask(Kind.PRODUCE, m.Produce([m.ProducePart(2, 0)]), token(1)),
                ask(Kind.CREATE_TOPIC, m.CreateTopic("secret", auto=True), token(1)),
                ask(Kind.CREATE_TOPIC, m.CreateTopic("nothing", auto=True), token(1))]
    assert all(isinstance(refusal, Forbidden) for refusal in refusals) and len({refusal.message for refusal in refusals}) == 1
    assert len(door.came) == 1 and door.guard.forbidden == 3


def test_who_has_no_key_does_not_learn_which_kinds_there_are(ask: Callable[..., Any]) -> None:
    unknown: Any = 39
    assert isinstance(ask(unknown, m.Empty(), ""), Unauthorized)
    assert isinstance(ask(unknown, m.Empty(), token(1)), UnknownKind)


def test_a_node_is_known_by_its_curve_key_alone(door: Door, ask: Callable[..., Any]) -> None:
    for pair in (NODE, SERVER):                                  # another node; a daemon of the same one
        assert ask(Kind.INIT_PRODUCER, m.InitProducer(), pair=pair) == m.InitProducerReply(1, 0)
    assert all(incoming.access and incoming.access.node for incoming in door.came)
    assert isinstance(ask(Kind.INIT_PRODUCER, m.InitProducer(), token(9), SERVER), Unauthorized)


def test_replies_are_cut_to_what_the_key_sees(door: Door, ask: Callable[..., Any]) -> None:
    sizes = [m.PartitionInfo(id, name, 0, 1, True, True, 0, 0, 0, 0, 1) for id, name in ((1, "orders.eu"), (2, "secret"))]
    door.answer = lambda incoming: incoming.reply(m.PartitionsReply(sizes))
    assert [part.topic for part in ask(Kind.PARTITIONS, m.Partitions(), token(1)).partitions] == ["orders.eu"]
    assert len(ask(Kind.PARTITIONS, m.Partitions(), pair=NODE).partitions) == 2


def test_a_request_that_waits_is_not_answered_once_its_key_is_revoked(door: Door, ask: Callable[..., Any],
                                                                      turn_until: TurnUntil) -> None:
    door.answer = lambda incoming: None
    results = ask(Kind.PARTITIONS, m.Partitions(), token(1), wait=False)
    turn_until(lambda: door.came)
    door.guard.verifier.take(told(NODE_KEY, version=2))
    door.came[0].reply(m.PartitionsReply([]))
    turn_until(lambda: results)
    assert isinstance(results[0], Unauthorized)


def test_nor_once_its_key_has_ended(door: Door, ask: Callable[..., Any], turn_until: TurnUntil) -> None:
    clock = Clock()
    door.guard.verifier._wall_us = clock
    door.guard.verifier.take(told(key(1, "publish", expires_us=2_000)))
    door.answer = lambda incoming: None
    results = ask(Kind.PARTITIONS, m.Partitions(), token(1), wait=False)
    turn_until(lambda: door.came)
    clock.now = 2_000
    door.came[0].reply(m.PartitionsReply([]))
    turn_until(lambda: results)
    assert isinstance(results[0], Unauthorized)


def test_one_that_waits_is_answered_when_another_key_is_revoked(door: Door, ask: Callable[..., Any], turn_until: TurnUntil) -> None:
    door.answer = lambda incoming: None
    results = ask(Kind.PARTITIONS, m.Partitions(), token(1), wait=False)
    turn_until(lambda: door.came)
    door.guard.verifier.take(told(PUBLISHER, version=2))
    door.came[0].reply(m.PartitionsReply([]))
    turn_until(lambda: results)
    assert results == [m.PartitionsReply([])]


def test_a_trusted_way_to_the_same_server_is_not_guarded(door: Door, ask: Callable[..., Any], endpoint: str, loop: Loop,
                                                         context: Context, turn_until: TurnUntil) -> None:
    door.server.bind(endpoint)
    caller, results = Caller(loop, context, endpoint), []
    turn_until(lambda: caller.connected)
    caller.call(Kind.INIT_PRODUCER, m.InitProducer(), lambda *reply: results.append(reply))
    turn_until(lambda: results)
    assert ask(Kind.INIT_PRODUCER, m.InitProducer(), token(1)) == m.InitProducerReply(1, 0)
    trusted, guarded = door.came
    assert results[0][0] == m.InitProducerReply(1, 0) and trusted.access is None
    assert trusted.peer[0] == 0 and guarded.peer[0] == 1 and trusted.peer != guarded.peer
    caller.close()


def test_ipv6(loop: Loop, context: Context, turn_until: TurnUntil) -> None:
    server = Server(loop, context, lambda incoming: incoming.reply(m.InitProducerReply(1, 0)))
    try:
        bound = server.bind("tcp://[::1]:0")
    except OSError:
        pytest.skip("no IPv6 here")
    finally:
        if not server.endpoints:
            server.close()
    caller, results = Caller(loop, context, bound), []
    turn_until(lambda: caller.connected)
    caller.call(Kind.INIT_PRODUCER, m.InitProducer(), lambda *reply: results.append(reply))
    turn_until(lambda: results)
    caller.close(), server.close()


@pytest.mark.parametrize("options", [{}, {zmq.CURVE_SERVERKEY: CLIENT[0], zmq.CURVE_PUBLICKEY: CLIENT[0],
                                          zmq.CURVE_SECRETKEY: CLIENT[1]}])
def test_nobody_gets_in_without_curve_or_with_another_servers_key(door: Door, ask: Callable[..., Any], turn_until: TurnUntil,
                                                                  options: dict[int, bytes]) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as raw:
        raw.linger = 0
        for option, value in options.items():
            raw.setsockopt(option, value)
        events = raw.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_CLOSED | zmq.EVENT_DISCONNECTED
                                        | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
        raw.connect(door.endpoint)
        raw.send(m.encode_request(Kind.INIT_PRODUCER, 1, m.InitProducer(), token=token(1).encode()))
        turn_until(lambda: events.poll(0))
        assert int.from_bytes(events.recv_multipart()[0][:2], "little") != zmq.EVENT_HANDSHAKE_SUCCEEDED
        raw.disable_monitor()
        events.close(0)
    assert ask(Kind.INIT_PRODUCER, m.InitProducer(), token(1))       # others do
    assert len(door.came) == 1


def test_who_knocks_without_a_key_is_told_of_now_and_then_and_never_by_it(door: Door, ask: Callable[..., Any],
                                                                         caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, LOG.name):
        for _ in range(3):
            ask(Kind.STATUS, m.Empty(), token(5))
    assert len(caplog.records) == 1 and token(5) not in caplog.text + repr(caplog.records[0].__dict__)


def test_libzmq_is_told_to_take_curve_only() -> None:
    whole = [b"1.0", b"7", b"goqueue", b"1.2.3.4", b"", b"CURVE", bytes(32)]
    assert curve.answer(whole)[:3] == [b"1.0", b"7", b"200"]
    for at, bad in ((0, b"2.0"), (2, b"else"), (5, b"NULL"), (5, b"PLAIN"), (6, b"short")):
        assert curve.answer([*whole[:at], bad, *whole[at + 1:]])[1:3] == [b"7", b"400"]
    for cut in range(7):
        assert curve.answer(whole[:cut])[2] == b"400"


# -- the file of keys ----------------------------------------------------------------------------

def test_a_node_has_one_pair_and_keeps_it_to_itself(tmp_path: Path) -> None:
    pair = curve.pair_of(str(tmp_path))
    path = tmp_path / curve.SECRET_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and os.listdir(tmp_path) == [curve.SECRET_FILE]
    assert curve.pair_of(str(tmp_path)) == pair and zmq.curve_public(pair[1]) == pair[0]


def test_a_file_that_others_read_is_not_used(tmp_path: Path) -> None:
    curve.pair_of(str(tmp_path))
    (tmp_path / curve.SECRET_FILE).chmod(0o640)
    with pytest.raises(BadConfig, match="0640"):
        curve.pair_of(str(tmp_path))


@pytest.mark.parametrize("text", ["", "nonsense", 'curve\n    public-key = "x"\n', 'curve\n    public-key = "{0}"\n',
                                  'curve\n    public-key = "{0}"\n    secret-key = "{0}"\n'])
def test_a_bad_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / curve.SECRET_FILE
    path.write_text(text.format(CLIENT[0].decode()))
    path.chmod(0o600)
    with pytest.raises(BadConfig, match=curve.SECRET_FILE):
        curve.pair_of(str(tmp_path))


# -- a daemon -------------------------------------------------------------------------------------

class Quiet:
    def __init__(self, daemon: Daemon) -> None: ...
    def start(self) -> None: ...
    def handle(self, incoming: Incoming) -> None: ...
    def stop(self) -> None: ...


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str) -> Iterator[Callable[..., Daemon]]:
    monkeypatch.setenv("GOQUEUE_RUNTIME_DIR", os.path.dirname(endpoint.removeprefix("ipc://")))
    made: list[Daemon] = []

    def make(**options: Any) -> Daemon:
        given = {"metrics.listeners.logd": "off"} | {key.replace("__", "."): value for key, value in options.items()}
        made.append(Daemon("logd", Config(SHARED, given), str(tmp_path), "n1", d.take_lock(str(tmp_path), "logd")))
        made[-1].open(Quiet)
        return made[-1]

    yield make
    for daemon in made:
        daemon._close()


def test_a_public_listener_is_guarded_and_told_by_its_name_and_key(make: Callable[..., Daemon]) -> None:
    daemon = make(broker__listeners__logd="0.0.0.0:0", broker__advertise="node1.example")
    assert daemon.guard and daemon.public_key == curve.pair_of(daemon.data_dir)[0].decode()
    assert daemon.endpoints[1].startswith("tcp://node1.example:") and not daemon.endpoints[1].endswith(":0")
    daemon.take_keys(told(PUBLISHER), {5: "t"}.get)
    assert daemon.guard.verifier.access(token(1)) and daemon.guard.names(5) == "t"
    with pytest.raises(BadConfig, match="gqctl key create"):
        daemon.take_keys(told(version=2), {}.get)


@pytest.mark.parametrize("options", [{"broker__listeners__logd": "127.0.0.1:0"},
                                     {"broker__listeners__logd": "0.0.0.0:0", "security__insecure": True}])
def test_others_are_not(make: Callable[..., Daemon], options: dict[str, Any]) -> None:
    daemon = make(**options)
    assert daemon.guard is None and daemon.public_key == ""
    daemon.take_keys(told(), {}.get)
    assert not os.path.exists(os.path.join(daemon.data_dir, curve.SECRET_FILE))


def test_a_clients_way_to_metad_is_the_nodes_own(make: Callable[..., Daemon]) -> None:
    from gq_client import node
    daemon = make(broker__listeners__logd="off")
    assert daemon.client_options() == {"data_dir": daemon.data_dir}
    daemon = daemon_of(daemon, broker__metad="tcp://10.0.0.1:7400", security__metadKey=NODE_KEY.curve)
    options = daemon.client_options()
    assert options.pop("key") == ""
    routes = node.find(**options)
    assert routes.server_key("tcp://10.0.0.1:7400") == NODE_KEY.curve and routes.pair == daemon.pair


def daemon_of(daemon: Daemon, **options: Any) -> Daemon:
    """The same one with other options."""
    daemon.config = config(**options)
    return daemon


@pytest.mark.parametrize(("endpoint_", "host", "told_as"), [
    ("ipc:///x", "h", "ipc:///x"), ("tcp://127.0.0.1:1", "h", "tcp://127.0.0.1:1"), ("tcp://10.0.0.1:1", "", "tcp://10.0.0.1:1"),
    ("tcp://10.0.0.1:1", "h", "tcp://h:1"), ("tcp://0.0.0.0:1", "h", "tcp://h:1"), ("tcp://[::]:1", "fd00::1", "tcp://[fd00::1]:1")])
def test_how_others_reach_it(endpoint_: str, host: str, told_as: str) -> None:
    assert paths.advertised(endpoint_, host) == told_as


def test_where_all_interfaces_are_meant_the_machines_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "box")
    assert paths.advertised("tcp://0.0.0.0:1", "") == "tcp://box:1"


def test_errors_of_the_guard_are_the_callers_and_not_retried() -> None:
    assert not any(issubclass(error, GoQueueError) and error.retriable for error in (Unauthorized, Forbidden))
