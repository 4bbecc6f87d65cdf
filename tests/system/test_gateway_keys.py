"""A gateway that other machines reach, by HTTP and gRPC: keys and what they are for, TLS, starting, and what the logs say of it.

One node for all; tests that need the gateway's listeners otherwise start it anew. Callers come by 127.0.0.1: a public listener
wants keys from there, too.
"""

import contextlib
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import grpc
import pytest

from gq_gateway import goqueue_pb2 as pb
from gq_gateway import goqueue_pb2_grpc
from gq_proto import keys
from tests.certificates import self_signed
from tests.system.harness import Node, environment, free_port, until
from tests.system.web import Answer, Web, beside, reply

PAYLOAD = "the-payload-nobody-may-log"
SCOPES = {"shop": "publish:orders.*", "billing": "consume:orders.*:billing", "ops": "all", "brief": "consume:brief:brief"}
UNAUTHENTICATED, DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED


class Public:
    """A node whose gateway listens on all interfaces."""

    def __init__(self, folder: Path) -> None:
        self.grpc_port = free_port()
        self.open = {"GOQUEUE_HTTP_ADDR": f"0.0.0.0:{free_port()}", "GOQUEUE_GRPC_ADDR": f":{self.grpc_port}",
                     "GOQUEUE_LOG_LEVEL": "debug"}
        self.web = Web(folder, **self.open)
        self.node = self.web.node
        self.node.start("metad")
        with self.node.client() as local:
            self.tokens = {name: local.create_key(name, keys.parse_scopes(scopes)).token for name, scopes in SCOPES.items()}
        self.web.start()

    def ask(self, key: str, method: str, path: str, body: Any = None, **query: Any) -> Answer:
        return self.web.ask(method, path, body, headers=self.header(key), **query)

    def header(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens.get(key, key)}"} if key else {}

    @contextlib.contextmanager
    def stub(self, credentials: Any = None) -> Iterator[Any]:
        options = [("grpc.use_local_subchannel_pool", 1)]
        at = f"localhost:{self.grpc_port}"
        with grpc.secure_channel(at, credentials, options) if credentials else grpc.insecure_channel(at, options) as channel:
            yield goqueue_pb2_grpc.GoQueueStub(channel)

    def metadata(self, key: str, name: str = "x-api-key") -> tuple[tuple[str, str], ...]:
        return ((name, self.tokens.get(key, key)),) if key else ()


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Public]:
    made = Public(tmp_path_factory.mktemp("public"))
    try:
        with made.node.client() as local:
            local.create_topic("secret", partitions=1)
            local.create_topic("brief", partitions=1)
        yield made
    finally:
        made.web.stop()


def status_of(call: Any, *args: Any, **more: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        found = call(*args, timeout=10, **more)
        list(found)                                      # of a stream
    return caught.value.code(), caught.value.details()


# -- HTTP ------------------------------------------------------------------------------------------

def test_over_http_each_key_does_what_it_is_for_and_nothing_else(public: Public) -> None:
    ask = public.ask
    assert ask("shop", "POST", "/topics/orders.http/publish", {"value": PAYLOAD, "key": PAYLOAD}).status == 200
    polled = ask("billing", "GET", "/v1/groups/billing/poll", topics="orders.http", wait="10s").json["messages"]
    assert [message["value"] for message in polled] == [PAYLOAD]
    assert ask("billing", "POST", "/groups/billing/ack", {"receipt": polled[0]["receipt"]}).json["settled"] == 1
    assert public.web.ask("GET", "/groups/billing/lag", headers={"X-API-Key": public.tokens["billing"]}).json["lag"] == 0

    for key, method, path, body in (
            ("shop", "POST", "/topics/secret/publish", {"value": "x"}), ("shop", "GET", "/topics/orders.http/messages", None),
            ("shop", "POST", "/topics", {"name": "orders.more"}), ("shop", "DELETE", "/topics/orders.http", None),
            ("billing", "POST", "/topics/orders.http/publish", {"value": "x"}), ("shop", "GET", "/admin/metrics", None),
            ("billing", "GET", "/groups/billing/poll?topics=secret&wait=0", None), ("billing", "GET", "/admin/cluster", None),
            ("billing", "GET", "/groups/others/poll?topics=orders.http&wait=0", None),
            ("billing", "POST", "/groups/billing/pause", None), ("billing", "GET", "/topics/secret", None)):
        answer = ask(key, method, path, body)
        assert (answer.status, answer.code) == (403, "forbidden"), path
    assert ask("ops", "GET", "/topics/secret").status == 200 and ask("ops", "GET", "/admin/cluster").status == 200


def test_over_http_nobody_learns_what_exists(public: Public) -> None:
    for method, path, body in (("POST", "/topics/{}/publish", {"value": "x"}), ("GET", "/topics/{}", None),
                               ("GET", "/topics/{}/messages", None), ("GET", "/delay/stats?topic={}", None)):
        there, not_there = (public.ask("shop", method, path.format(name), body) for name in ("secret", "nothing"))
        assert there.status == 403 and there.body == not_there.body
    assert {topic["name"] for topic in public.ask("shop", "GET", "/topics").json["topics"]} <= {"orders.http", "orders.grpc"}
    assert public.ask("shop", "GET", "/groups").json == {"groups": []}


@pytest.mark.parametrize("key", ["", "nonsense", keys.make_token("0123456789ab", 1)])
def test_over_http_without_a_key_there_is_nothing(public: Public, key: str) -> None:
    for method, path, body in (("GET", "/topics", None), ("POST", "/topics/orders.http/publish", {"value": "x"}),
                               ("GET", "/topics/nothing", None), ("POST", "/messages/ack", {"receipt": "x"})):
        answer = public.ask(key, method, path, body)
        assert (answer.status, answer.code, answer.headers["WWW-Authenticate"]) == (401, "unauthorized", "Bearer")
    assert public.ask(key, "GET", "/admin/health").json == {"live": True, "ready": True, "detail": ""}


def test_gqctl_is_told_that_a_gateway_speaks_no_tls(public: Public) -> None:
    code, said = gqctl(public, f"https://127.0.0.1:{public.web.port}")
    assert code == 3 and f"127.0.0.1:{public.web.port} does not speak TLS: write http://" in said
    assert gqctl(public, f"http://127.0.0.1:{public.web.port}") == (0, "")


def gqctl(public: Public, url: str, **env: str) -> tuple[int, str]:
    """The exit code and what it says, which is one line at most, of listing topics from elsewhere."""
    given = {"GOQUEUE_DATA_DIR": "/nowhere", "GOQUEUE_GATEWAY": url, "GOQUEUE_KEY": public.tokens["ops"], **env}
    done = subprocess.run([sys.executable, "-m", "gq_ctl", "topic", "list"], env=environment(**given), capture_output=True,
                          text=True, timeout=60)
    assert done.stderr.count("\n") == (1 if done.returncode else 0), done.stderr
    assert done.returncode or "secret" in done.stdout
    return done.returncode, done.stderr


# -- gRPC ------------------------------------------------------------------------------------------

def test_over_grpc_each_key_does_what_it_is_for_and_nothing_else(public: Public) -> None:
    shop, billing = public.metadata("shop"), public.metadata("billing")
    message = pb.Draft(topic="orders.grpc", value=PAYLOAD.encode())
    with public.stub() as stub:
        assert stub.Publish(pb.PublishRequest(message=message), metadata=shop, timeout=10).timestamp_us
        drafts = [message, pb.Draft(topic="secret", value=b"x"), pb.Draft(topic="nothing", value=b"x")]
        results = next(stub.PublishStream(iter([pb.PublishStreamRequest(messages=drafts)]), metadata=shop, timeout=10)).results
        assert [one.error.code for one in results] == ["", "forbidden", "forbidden"]
        assert results[1].error == results[2].error
        wanted = pb.SubscribeRequest(group="billing", topics=["orders.grpc"])
        stream = stub.Subscribe(wanted, metadata=(("authorization", f"Bearer {public.tokens['billing']}"),), timeout=20)
        assert next(stream).member
        receipts: list[str] = []
        while len(receipts) < 2:
            receipts += [one.receipt for one in next(stream).messages]
        acked = stub.Ack(pb.AckRequest(receipts=receipts), metadata=billing, timeout=10)
        assert [one.error.code for one in acked.results] == ["", ""]
        stream.cancel()
        for call, request, key in (
                (stub.Publish, pb.PublishRequest(message=message), billing),
                (stub.Publish, pb.PublishRequest(message=pb.Draft(topic="secret")), shop),
                (stub.CreateTopic, pb.CreateTopicRequest(name="orders.more"), shop), (stub.Subscribe, wanted, shop),
                (stub.Subscribe, pb.SubscribeRequest(group="billing", topics=["secret"]), billing),
                (stub.Subscribe, pb.SubscribeRequest(group="others", topics=["orders.grpc"]), billing),
                (stub.Join, pb.JoinRequest(group="billing", topics=["nothing"]), billing)):
            assert status_of(call, request, metadata=key)[0] is DENIED, request
        assert {one.name for one in stub.ListTopics(pb.ListTopicsRequest(), metadata=shop, timeout=10).topics} <= \
            {"orders.http", "orders.grpc"}


@pytest.mark.parametrize("key", ["", "nonsense", keys.make_token("0123456789ab", 1)])
def test_over_grpc_without_a_key_there_is_nothing(public: Public, key: str) -> None:
    metadata = public.metadata(key)
    with public.stub() as stub:
        for call, request in ((stub.ListTopics, pb.ListTopicsRequest()),
                              (stub.Publish, pb.PublishRequest(message=pb.Draft(topic="orders.grpc"))),
                              (stub.Subscribe, pb.SubscribeRequest(group="billing", topics=["nothing"])),
                              (stub.PublishStream, iter([])), (stub.Settle, iter([]))):
            assert status_of(call, request, metadata=metadata)[0] is UNAUTHENTICATED, request


# -- a key that is revoked -------------------------------------------------------------------------

def test_who_waits_with_a_key_that_is_revoked_gets_nothing_and_no_message_is_lost(public: Public) -> None:
    answers: list[Answer] = []
    with public.stub() as stub, public.node.client() as local:
        poll = beside(lambda: answers.append(public.ask("brief", "GET", "/groups/brief/poll", topics="brief", wait="20s")))
        until(lambda: any(one.group == "brief" and one.members for one in local.groups()), "the poll is a member")
        stream = stub.Subscribe(pb.SubscribeRequest(group="brief", topics=["brief"]), metadata=public.metadata("brief"), timeout=20)
        assert next(stream).member
        assert local.revoke_key("brief").unconfirmed == []          # the gateway, too, has said that it knows
        assert public.ask("brief", "GET", "/topics").status == 401
        for _ in range(2):
            local.publish("brief", PAYLOAD.encode())
            with contextlib.suppress(AssertionError):
                until(lambda: answers, "the poll ends", timeout=2)
        poll.join(10)
        assert answers and (answers[0].status, answers[0].code) == (401, "unauthorized")
        with pytest.raises(grpc.RpcError) as caught:
            next(stream)
        assert caught.value.code() is UNAUTHENTICATED
        with local.consumer(["brief"], group="brief", ack="manual") as consumer:
            taken = []
            for message in consumer.messages(timeout=10.0):
                message.ack()
                taken.append((message.value, message.delivery))
                if len(taken) == 2:
                    break
        assert taken == [(PAYLOAD.encode(), 1)] * 2                 # and nobody's attempt was counted


# -- the logs --------------------------------------------------------------------------------------

def test_neither_keys_nor_payloads_are_in_the_logs(public: Public) -> None:
    wrong = keys.make_token("0123456789ab", 5)
    public.ask(wrong, "POST", "/topics/orders.http/publish", {"value": PAYLOAD})
    public.ask("shop", "POST", "/topics/orders.http/publish", {"value": PAYLOAD, "priority": PAYLOAD})
    public.ask("shop", "POST", "/topics/orders.http/publish", PAYLOAD.encode())
    reply(public.web.raw(f"POST /topics HTTP/9 {PAYLOAD}\r\nAuthorization: Bearer {wrong}\r\n\r\n".encode()))
    log = (public.node.out / "gateway.log").read_text()
    assert "requests without a valid key" in log and "in clear" in log
    for token in (wrong, *public.tokens.values()):
        assert keys.split(token.encode())[1].decode() not in log  # type: ignore[index]
    assert PAYLOAD not in log and "Traceback" not in log


# -- TLS -------------------------------------------------------------------------------------------

class Tls:
    """The public node's gateway, started anew with certificates; callers have to show one."""

    def __init__(self, public: Public, folder: Path) -> None:
        self.server, self.caller, self.stranger = (self_signed(folder, name) for name in ("server", "caller", "stranger"))
        self.env = {f"GOQUEUE_{listener}_TLS_{what}": path for listener in ("HTTP", "GRPC") for what, path in (
            ("CERT", self.server.certificate), ("KEY", self.server.key), ("CLIENT_CA", self.caller.certificate))}
        public.node.terminate("gateway")
        public.node.env |= self.env | {"GOQUEUE_HTTP_REQUEST_TIMEOUT": "500ms"}
        public.node.start("gateway")
        self.public = public

    def line(self, pair: Any) -> HTTPSConnection:
        context = ssl.create_default_context(cafile=self.server.certificate)
        if pair:
            context.load_cert_chain(pair.certificate, pair.key)
        return HTTPSConnection("localhost", self.public.web.port, timeout=10, context=context)

    def get(self, path: str, pair: Any, headers: dict[str, str]) -> Answer:
        with contextlib.closing(self.line(pair)) as line:
            return self.ask(line, path, headers)

    def ask(self, line: HTTPSConnection, path: str, headers: dict[str, str]) -> Answer:
        line.request("GET", path, headers=headers)
        answer = line.getresponse()
        return Answer(answer.status, answer.headers, answer.read())

    def renew(self, folder: Path) -> None:
        """Another certificate and key in the same places, as certbot puts them there."""
        for new, old in zip(self_signed(folder, "renewed"), self.server, strict=True):
            os.replace(new, old)

    def credentials(self, pair: Any) -> Any:
        roots = Path(self.server.certificate).read_bytes()
        shown = (Path(pair.key).read_bytes(), Path(pair.certificate).read_bytes()) if pair else (None, None)
        return grpc.ssl_channel_credentials(roots, *shown)


@pytest.fixture(scope="module")
def tls(public: Public, tmp_path_factory: pytest.TempPathFactory) -> Tls:
    return Tls(public, tmp_path_factory.mktemp("tls"))


def test_over_tls_with_a_certificate_and_a_key(tls: Tls, public: Public) -> None:
    assert tls.get("/topics/secret", tls.caller, public.header("ops")).json["name"] == "secret"
    assert tls.get("/topics/secret", tls.caller, public.header("shop")).code == "forbidden"
    assert tls.get("/topics", tls.caller, {}).code == "unauthorized"
    with public.stub(tls.credentials(tls.caller)) as stub:
        assert stub.ListTopics(pb.ListTopicsRequest(), metadata=public.metadata("ops"), timeout=10).topics
        assert status_of(stub.ListTopics, pb.ListTopicsRequest())[0] is UNAUTHENTICATED


def test_over_tls_without_a_certificate_of_the_right_authority_nobody_gets_in(tls: Tls, public: Public) -> None:
    for pair in (None, tls.stranger):
        with pytest.raises(OSError):                     # ssl's errors are
            tls.get("/topics", pair, public.header("ops"))
        with public.stub(tls.credentials(pair)) as stub:
            assert status_of(stub.ListTopics, pb.ListTopicsRequest(), metadata=public.metadata("ops"))[0] \
                is grpc.StatusCode.UNAVAILABLE


def test_who_speaks_plainly_or_never_ends_the_handshake_is_cut_off(tls: Tls, public: Public) -> None:
    for sent in (b"GET /topics HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01", b""):
        began = time.monotonic()
        with public.web.raw(sent) as line, contextlib.suppress(ConnectionError):
            while line.recv(4096):
                pass
        assert time.monotonic() - began < 5
    assert tls.get("/topics", tls.caller, public.header("ops")).status == 200


def test_gqctl_over_tls(tls: Tls, public: Public, tmp_path: Path) -> None:
    both = tmp_path / "caller.pem"
    both.write_bytes(Path(tls.caller.certificate).read_bytes() + Path(tls.caller.key).read_bytes())
    here = f"https://localhost:{public.web.port}"
    ca, cert = {"GOQUEUE_GATEWAY_CA": tls.server.certificate}, {"GOQUEUE_GATEWAY_CERT": str(both)}
    assert gqctl(public, here, **ca, **cert) == (0, "")
    for url, env, code, part in (
            (here, cert, 3, "shows a certificate of nobody known here (self-signed certificate): give its authority, --gateway-ca"),
            (here, ca, 3, "a certificate of yours"),
            (here.replace("localhost", "127.0.0.2"), {**ca, **cert}, 3, "is for other names: IP address mismatch"),
            (here.replace("https", "http"), {}, 3, "is it https://?"),
            (here, {**ca, "GOQUEUE_GATEWAY_CERT": tls.caller.certificate}, 2, "holds no certificate with its key"),
            (here, {"GOQUEUE_GATEWAY_CA": tls.server.key}, 2, "--gateway-ca: "),
            (here, {"GOQUEUE_GATEWAY_CA": "/nothing"}, 2, "--gateway-ca: cannot read /nothing: No such file"),
            (here, {**ca, "GOQUEUE_GATEWAY_CERT": "/nothing"}, 2, "--gateway-cert: cannot read /nothing: No such file")):
        found, said = gqctl(public, url, **env)
        assert (found, part in said) == (code, True), said


def shown(tls: Tls) -> bool:
    """The certificate that lies there now is the gateway's."""
    with contextlib.closing(tls.line(tls.caller)) as line, contextlib.suppress(ssl.SSLError):
        line.connect()
        return True
    return False


def test_a_renewed_certificate_is_taken_up_and_nobody_loses_a_connection(tls: Tls, public: Public, tmp_path: Path) -> None:
    ops, old = public.header("ops"), tls.credentials(tls.caller)

    def ask(stub: Any) -> Any:
        return stub.ListTopics(pb.ListTopicsRequest(), metadata=public.metadata("ops"), timeout=10, wait_for_ready=True).topics

    with contextlib.closing(tls.line(tls.caller)) as kept, public.stub(old) as stub:
        assert tls.ask(kept, "/topics", ops).status == 200 and ask(stub)
        socket = kept.sock
        tls.renew(tmp_path)
        until(lambda: shown(tls), "who comes now is shown the new certificate")
        assert tls.ask(kept, "/topics", ops).status == 200 and kept.sock is socket and ask(stub)
    with public.stub(tls.credentials(tls.caller)) as stub:
        assert ask(stub)
    with public.stub(old) as stub:
        assert status_of(stub.ListTopics, pb.ListTopicsRequest())[0] is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(("name", "said"), [
    ("GOQUEUE_HTTP_TLS_KEY", "http.tls.keyFile: {} is not the key of the certificate"),
    ("GOQUEUE_GRPC_TLS_CERT", "grpc.tls.certFile: cannot read {}: No such file or directory")])
def test_files_that_will_not_do_are_one_line_at_the_start(tls: Tls, tmp_path: Path, name: str, said: str) -> None:
    path = tls.stranger.key if name.endswith("KEY") else str(tmp_path / "nothing")
    with Node(tmp_path, env={**tls.env, "GOQUEUE_HTTP_ADDR": "127.0.0.1:0", "GOQUEUE_GRPC_ADDR": f"127.0.0.1:{free_port()}",
                             "GOQUEUE_METRICS_ADDR": "off", "GOQUEUE_GATEWAY_METRICS_ADDR": "off", name: path}) as node:
        assert refusal(node) == [f"gq_gateway: {said.format(path)}" + (f" in {tls.server.certificate}" if "KEY" in name else "")]


# -- starting --------------------------------------------------------------------------------------

def refusal(node: Node) -> list[str]:
    """What a gateway says that does not start."""
    (node.out / "gateway.log").unlink(missing_ok=True)
    node.start("gateway", wait=False)
    assert node.processes["gateway"].wait(20) == 2
    return [line for line in node.log("gateway").splitlines() if not line.startswith("{")]


def test_a_public_listener_does_not_start_without_a_key_unless_that_is_wanted(tmp_path: Path) -> None:
    off = {f"GOQUEUE_{name}_ADDR": "off" for name in ("HTTP", "GRPC", "METRICS", "GATEWAY_METRICS")}
    with Node(tmp_path, env=off).start("metad") as node:
        for name, key in (("HTTP", "http.address"), ("GRPC", "grpc.address")):
            node.env |= off | {f"GOQUEUE_{name}_ADDR": f"0.0.0.0:{free_port()}"}
            said = refusal(node)
            assert len(said) == 1, said
            assert key in said[0] and "gqctl key create" in said[0]
        node.env |= {"GOQUEUE_HTTP_ADDR": "0.0.0.0:0", "GOQUEUE_SECURITY_INSECURE": "true"}
        node.start("gateway")
        assert "security.insecure" in node.log("gateway")
        web = Web.__new__(Web)
        web.node = node
        web.find()
        assert web.get("/topics").status == 200


def test_a_node_is_public_from_its_first_start_with_a_key_that_was_made_before(tmp_path: Path) -> None:
    made = Web(tmp_path, GOQUEUE_HTTP_ADDR=f"0.0.0.0:{free_port()}", GOQUEUE_METAD_ADDR=f"0.0.0.0:{free_port()}",
               GOQUEUE_ADVERTISE="127.0.0.1")
    try:
        token = made.node.gqctl("key", "create", "ops", "--allow", "all", "-o", "value").stdout.decode().strip()
        made.start()
        assert made.get("/topics").status == 401
        assert made.ask("GET", "/topics", headers={"X-API-Key": token}).status == 200
    finally:
        made.stop()
