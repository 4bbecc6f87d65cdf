"""Keys on real daemons: public listeners, who gets in and who does not, nodes of one cluster, and what the logs say of it."""

import re
import socket
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import pytest

import gq_client
from gq_proto import keys
from gq_proto.errors import Forbidden, Unauthorized, Unavailable, UnknownTopic
from gq_proto.messages import Op
from gq_proto.receipt import parse_receipt
from gq_run import curve
from tests.system.harness import DAEMONS, Node, free_port, until

SECRET_PAYLOAD = b"the-payload-nobody-may-log"
PRIVATE_KEY = "the-message-key-nobody-may-log"


def listening(*daemons: str, host: str = "0.0.0.0", **more: str) -> dict[str, str]:
    """The environment of a node whose daemons listen on free ports."""
    addresses = {f"GOQUEUE_{name.upper()}_ADDR": f"{host}:{free_port()}" for name in daemons}
    return addresses | {"GOQUEUE_ADVERTISE": "127.0.0.1", **more}


class Guarded:
    """A node that is open to other machines, and clients that come from one."""

    def __init__(self, folder: Path) -> None:
        self.tokens: dict[str, str] = {}
        env = listening(*DAEMONS, GOQUEUE_LOG_LEVEL="debug")
        self.node = Node(folder, env=env | {name: "off" for name in env if name.endswith("_ADDR")}).start("metad")
        with self.node.client() as local:
            for name, scopes in (("shop", "publish:orders.*"), ("billing", "consume:orders.*:billing"), ("ops", "all")):
                self.tokens[name] = local.create_key(name, keys.parse_scopes(scopes)).token
        self.node.terminate()
        self.node.env |= env
        self.node.start()
        with self.node.client() as local:
            local.create_topic("secret")
        self.port = env["GOQUEUE_METAD_ADDR"].rpartition(":")[2]
        self.server = f"127.0.0.1:{self.port}"
        self.server_key = curve.pair_of(str(self.node.data))[0].decode()

    def client(self, key: str) -> gq_client.Client:
        """Of another machine: it has no way to the sockets of the runtime directory."""
        client = gq_client.Client(self.server, key=self.tokens.get(key, key), curve_server_key=self.server_key, timeout=10)
        client.routes._reachable = lambda endpoint: not endpoint.startswith("ipc://")
        return client

    def logs(self) -> str:
        return "".join(path.read_text() for path in self.node.out.iterdir())


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    made = Guarded(tmp_path_factory.mktemp("guarded"))
    yield made
    made.node.stop()


# -- starting ------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["metad", "logd"])
def test_a_public_listener_does_not_start_without_a_key(tmp_path: Path, name: str) -> None:
    with Node(tmp_path, env=listening(name)) as node:
        if name != "metad":
            node.start("metad")
        node.start(name, wait=False)
        assert node.processes[name].wait(20) == 2
        said = [line for line in node.log(name).splitlines() if not line.startswith("{")]
        assert len(said) == 1 and "gqctl key create" in said[0] and f"broker.listeners.{name}" in said[0]


def test_unless_it_is_said_to_be_insecure(tmp_path: Path) -> None:
    env = listening("metad", "logd", GOQUEUE_SECURITY_INSECURE="true")
    with Node(tmp_path, env=env, daemons=("metad", "logd")).start() as node:
        server = f"127.0.0.1:{env['GOQUEUE_METAD_ADDR'].rpartition(':')[2]}"
        with gq_client.Client(server, timeout=10) as client:
            client.routes._reachable = lambda endpoint: endpoint.startswith("tcp://")
            assert client.publish("t", b"x").offset >= 0
        assert "security.insecure" in node.log("logd")


# -- from another machine ------------------------------------------------------------------------

def test_each_key_does_what_it_is_for_and_nothing_else(guarded: Guarded) -> None:
    with guarded.client("shop") as shop, guarded.client("billing") as billing, guarded.client("ops") as ops:
        with shop.producer() as producer:
            for number in range(50):
                producer.send("orders.eu", b"%d" % number, key=PRIVATE_KEY)
        shop.publish("orders.eu", SECRET_PAYLOAD)
        with billing.consumer(["orders.eu"], group="billing", ack="manual") as consumer:
            taken = list(islice(consumer.messages(timeout=10.0), 51))
            for message in taken[1:]:
                message.ack()
            assert billing.settle(Op.ACK, [parse_receipt(taken[0].receipt)]) == [None]
        assert SECRET_PAYLOAD in [message.value for message in taken]
        assert sum(part.lag for part in ops.describe_group("billing").partitions) == 0
        ops.delete_topic("orders.eu")

        for wrong in (lambda: shop.publish("secret", b"x"), lambda: shop.create_topic("orders.us"),
                      lambda: shop.delete_topic("secret"), lambda: billing.publish("orders.us", b"x"),
                      lambda: billing.delete_group("billing"), lambda: shop.create_key("more", keys.parse_scopes("all")),
                      lambda: next(iter(shop.consumer(["orders.eu"], group="billing")))):
            with pytest.raises(Forbidden):
                wrong()


def test_nobody_learns_what_exists(guarded: Guarded) -> None:
    with guarded.client("shop") as shop, guarded.client("billing") as billing:
        assert not [topic.name for topic in shop.topics() if not topic.name.startswith(("__", "orders."))]
        told = set()
        for name in ("secret", "nothing"):
            for refused in (partial(shop.publish, name, b"x"), partial(shop.delete_topic, name)):
                with pytest.raises(Forbidden) as error:
                    refused()
                told.add(error.value.message)
            with pytest.raises(UnknownTopic):
                billing.reader(name, 0)
            with pytest.raises(Forbidden):
                billing.describe_group(name)
        assert len(told) == 2                                    # one for each verb
        assert billing.groups() == [] or {group.group for group in billing.groups()} == {"billing"}


@pytest.mark.parametrize("key", ["", "nonsense", keys.make_token("0123456789ab", 1)])
def test_without_a_key_there_is_nothing(guarded: Guarded, key: str) -> None:
    with guarded.client(key) as client:
        for ask in (client.topics, lambda: client.publish("orders.eu", b"x"), client.statuses):
            with pytest.raises(Unauthorized):
                ask()


def test_nor_without_curve(guarded: Guarded) -> None:
    with gq_client.Client(guarded.server, key=guarded.tokens["ops"], timeout=1) as client:
        with pytest.raises(Unavailable, match="CURVE"):
            client.topics()


def test_a_revoked_key_is_dead_everywhere_at_once(guarded: Guarded) -> None:
    with guarded.node.client() as local, guarded.client("ops") as ops:
        token = ops.create_key("brief", keys.parse_scopes("all")).token
        with guarded.client(token) as brief:
            brief.publish("brief", b"1")
            gone = local.revoke_key("brief")
            assert gone.unconfirmed == []
            for ask in (lambda: brief.publish("brief", b"2"), brief.topics, lambda: brief.describe_group("billing")):
                with pytest.raises(Unauthorized):
                    ask()
        ops.delete_topic("brief")


def test_garbage_before_a_key_harms_nobody(guarded: Guarded) -> None:
    for junk in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, bytes(range(256)) * 40):
        with socket.create_connection(("127.0.0.1", int(guarded.port)), 5) as line:
            line.sendall(junk)
    with guarded.client("ops") as ops:
        assert ops.has_topic("secret")


def test_the_shell_comes_by_the_environment(guarded: Guarded) -> None:
    env = {"GOQUEUE_KEY": guarded.tokens["ops"], "GOQUEUE_CURVE_SERVER_KEY": guarded.server_key}
    guarded.node.env |= env
    try:
        listed = guarded.node.gqctl("--server", guarded.server, "key", "list", "-o", "value").stdout.split()
        assert {b"shop", b"billing", b"ops"} <= set(listed)
        assert guarded.node.gqctl("--server", guarded.server, "status").returncode == 0
        guarded.node.env["GOQUEUE_KEY"] = guarded.tokens["shop"]
        refused = guarded.node.gqctl("--server", guarded.server, "key", "list", check=False)
        assert refused.returncode == 1 and refused.stderr.count(b"\n") == 1
    finally:
        for name in env:
            del guarded.node.env[name]


def test_neither_keys_nor_payloads_are_in_the_logs_or_on_the_disk_but_where_they_belong(guarded: Guarded) -> None:
    with guarded.client("shop") as shop:
        shop.publish("orders.eu", SECRET_PAYLOAD, key=PRIVATE_KEY)
    guarded.node.kill9()
    logs = guarded.logs()
    assert '"level":"debug"' in logs
    secrets = [keys.split(token.encode())[1].decode() for token in guarded.tokens.values()]      # type: ignore[index]
    for hidden in (SECRET_PAYLOAD.decode(), PRIVATE_KEY, *secrets, curve.pair_of(str(guarded.node.data))[1].decode()):
        assert hidden not in logs
    files = [path for path in guarded.node.data.rglob("*") if path.is_file()]
    for secret in secrets:
        assert not [path for path in files if secret.encode() in path.read_bytes()]
    guarded.node.start()
    with guarded.client("shop") as shop:                         # keys outlive a crash
        shop.publish("orders.eu", b"after")


# -- nodes ---------------------------------------------------------------------------------------

def test_a_node_joins_by_its_curve_key_and_another_does_not(tmp_path: Path, guarded: Guarded) -> None:
    env = listening("logd", GOQUEUE_METAD=f"tcp://{guarded.server}", GOQUEUE_SECURITY_METAD_KEY=guarded.server_key)
    with Node(tmp_path, env=env, daemons=("logd",)) as other, guarded.node.client() as local:
        own = other.gqctl("key", "curve", "-o", "value").stdout.decode().strip()
        other.start(wait=False)
        until(lambda: "an API key is needed" in other.log("logd"), "the stranger is refused")
        local.create_key("second", curve=own, node=True)
        other.wait_ready()
        local.create_topic("both", partitions=8)
        (leader,) = {part.leader for part in local.topic("both").partitions}        # it had none, so it gets all
        assert leader == (other.data / "node.id").read_text().strip()
        with guarded.client("ops") as ops:
            for partition in range(8):
                assert ops.publish("both", b"x", partition=partition).partition == partition
            with ops.consumer(["both"], group="g", ack="manual") as consumer:
                for message in islice(consumer.messages(timeout=10.0), 8):
                    message.ack()
        local.revoke_key("second")
        other.kill9()
        other.start(wait=False)
        until(lambda: re.search("an API key is needed", other.log("logd").rpartition("started")[2]), "it is a stranger again")
