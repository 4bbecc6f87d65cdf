"""What operators see: every metric with its labels, type and value after a known workload; alerts and dashboards that ask only for
what is there; a real Prometheus that scrapes a node.
"""

import http.client
import json
import os
import re
import shutil
import subprocess
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

import gq_client
from gq_client.routing import To
from gq_gateway import goqueue_pb2 as pb
from gq_gateway import goqueue_pb2_grpc
from gq_proto import codec
from gq_proto.errors import Unauthorized
from gq_proto.keys import parse_scopes
from gq_proto.messages import Kind, Produce, ProducePart
from gq_run.curve import pair_of
from gq_run.metrics import DECLARED
from tests.certificates import self_signed
from tests.system.harness import DAEMONS, ROOT, Node, free_port, until
from tests.system.web import Web
from tests.unit.gq_run.test_metrics import SPECIFIED, UNLABELLED

ETC = ROOT / "etc"
RULES = yaml.safe_load((ETC / "prometheus" / "goqueue.rules.yml").read_text())
DASHBOARDS = sorted((ETC / "grafana" / "dashboards").glob("*.json"))
ALL = (*DAEMONS, "gateway")

# They are of what a node does not do yet: it has no followers, nothing is elected.
NOT_YET = {"goqueue_replication_lag_messages", "goqueue_leader_election_seconds"}
TOLD = DECLARED.keys() - NOT_YET

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Scrape:
    """One exposition, taken apart."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
        self.samples: Samples = {(sample.name, frozenset(sample.labels.items())): sample.value
                                 for family in text_string_to_metric_families(text) for sample in family.samples}

    def __call__(self, name: str, **labels: str) -> float:
        """The one sample with exactly these labels; `lag` and not `goqueue_lag`."""
        return self.samples[f"goqueue_{name}", frozenset(labels.items())]

    def labels(self, name: str) -> set[frozenset[str]]:
        """The sets of label names that a family's samples have, le apart."""
        names = {name, f"{name}_bucket", f"{name}_sum", f"{name}_count"}
        return {frozenset(label for label, _ in labels) - {"le"} for found, labels in self.samples if found in names}


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    on = {f"GOQUEUE_{name.upper()}_METRICS_ADDR": "127.0.0.1:0" for name in ALL}
    made = Web(tmp_path_factory.mktemp("metrics"), GOQUEUE_METRICS_ADDR="127.0.0.1:0", GOQUEUE_GRPC_ADDR="127.0.0.1:0", **on)
    try:
        open_metad(made)
        made.start()
        work(made)
        yield made
    finally:
        made.stop()


def open_metad(web: Web) -> None:
    """To other machines, whose keys it wants to see; a key has to be there before."""
    web.node.start("metad")
    web.node.client().create_key("any", parse_scopes("all"))
    web.node.terminate("metad")
    web.node.env |= {"GOQUEUE_METAD_ADDR": f"0.0.0.0:{free_port()}", "GOQUEUE_ADVERTISE": "127.0.0.1"}


@pytest.fixture(scope="module")
def scrape(web: Web) -> Scrape:
    return Scrape(get(address(web)))


def address(web: Web, daemon: str = "") -> str:
    """Where a daemon serves its metrics; the node's view, when none is named."""
    status = web.node.status(daemon or "gateway")
    assert status is not None
    return str(status.facts["metrics" if daemon else "node_metrics"])


def get(where: str, path: str = "/metrics") -> str:
    line = http.client.HTTPConnection(where, timeout=20)
    try:
        line.request("GET", path)
        answer = line.getresponse()
        body = answer.read().decode()
        assert answer.status == 200, body
        return body
    finally:
        line.close()


# -- the workload ------------------------------------------------------------------------------

def work(web: Web) -> None:
    """Everything the values below are about."""
    for name, settings in (("orders", {}), ("slow", {"visibilityMs": 200}), ("later", {})):
        assert web.post("/topics", {"name": name, "partitions": 2, "config": settings}).status == 201
    begin(web, "clerks", "orders")
    publish(web, "orders", "abcd")
    publish(web, "orders", "e", priority="critical")
    refuse_a_batch(web)
    knock(web)
    found = poll(web, "clerks", "orders", 5, visibility="1h")
    for op, message in zip(("ack", "ack", "reject", "nack"), found):
        body = {"receipt": message["receipt"], **({"delay": "1h"} if op == "nack" else {})}
        assert web.post(f"/messages/{op}", body).status == 200
    time_out(web)
    delay(web)
    call(web)
    until(lambda: web.get("/topics/orders/dlq").json["letters"], "the rejected message is a dead letter")
    until(lambda: seen(web), "groupd's figures, up to a second old, are of now")


def call(web: Web) -> None:
    """By gRPC: two calls that are answered, one that is refused, a stream that has ended."""
    status = web.node.status("gateway")
    assert status is not None
    with grpc.insecure_channel(status.facts["grpc"]) as channel:
        stub = goqueue_pb2_grpc.GoQueueStub(channel)
        for _ in range(2):
            stub.ListTopics(pb.ListTopicsRequest(), timeout=20)
        with pytest.raises(grpc.RpcError):
            stub.Publish(pb.PublishRequest(message=pb.Draft(topic="no/name")), timeout=20)
        assert list(stub.Settle(iter([]), timeout=20)) == []


def seen(web: Web) -> bool:
    """The last that its groups did is in the node's view."""
    samples = Scrape(get(address(web))).samples
    last = {"messages_consumed_total": {"group": "sleepers", "topic": "slow"}, "dlq_total": {"topic": "orders"}}
    return all(samples.get((f"goqueue_{name}", frozenset(labels.items()))) == 1 for name, labels in last.items())


def publish(web: Web, topic: str, values: str, **more: Any) -> Any:
    answer = web.post(f"/topics/{topic}/batch", {"messages": [{"value": value, "partition": 0, **more} for value in values]})
    assert answer.status == 200, answer.body
    return answer.json


def poll(web: Web, group: str, topic: str, count: int, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    until(lambda: found.extend(web.get(f"/groups/{group}/poll", topics=topic, max=count, wait=1, **query).json["messages"])
          or len(found) >= count, f"{count} messages of {topic}")
    return found


def begin(web: Web, group: str, topic: str) -> None:
    """The group is there before the first message: what comes is counted from then on."""
    assert web.get(f"/groups/{group}/poll", topics=topic, wait=0).json["messages"] == []


def refuse_a_batch(web: Web) -> None:
    """Its first sequence number is none that logd can have missed."""
    client = web.node.client()
    topic = next(topic for topic in client.topics() if topic.name == "orders")
    builder = codec.BatchBuilder()
    builder.add(b"k", b"v")
    reply, _ = client.call(Kind.PRODUCE, Produce([ProducePart(topic.id, 0)]), [builder.seal(7, 0, 9)], to=To.leader(topic.id, 0))
    assert reply.parts[0].error


def knock(web: Web) -> None:
    """From another machine, with a key that is none."""
    server = web.node.env["GOQUEUE_METAD_ADDR"].replace("0.0.0.0", "127.0.0.1")
    with pytest.raises(Unauthorized), gq_client.Client(server, key="gq_wrong", timeout=10,
                                                       curve_server_key=pair_of(str(web.node.data))[0].decode()) as client:
        client.topics()


def time_out(web: Web) -> None:
    """One message is not acked in time, comes again, and is acked."""
    begin(web, "sleepers", "slow")
    publish(web, "slow", "x")
    poll(web, "sleepers", "slow", 1)
    [again] = poll(web, "sleepers", "slow", 1, visibility="1m")
    assert again["delivery"] == 2
    assert web.post("/groups/sleepers/ack", {"receipt": again["receipt"]}).status == 200


def delay(web: Web) -> None:
    """Of three delayed messages one comes due, one is cancelled, one waits."""
    publish(web, "later", "d", delay="50ms")
    publish(web, "later", "ww", delay="1h")
    until(lambda: len(web.get("/topics/later/delayed").json["messages"]) == 2, "delayd knows them, the first is due")
    first = web.get("/topics/later/delayed").json["messages"][0]
    assert web.ask("DELETE", f"/topics/later/delayed/{first['partition']}/{first['offset']}").status == 200


# -- names, labels, types ----------------------------------------------------------------------

def test_every_specified_metric_is_there_with_its_labels_and_type(scrape: Scrape) -> None:
    specified = {name: set(labels.split(",")) for name, labels in re.findall(r"(\w+)\{([\w,]+)\}", SPECIFIED)}
    specified |= {name: set(DECLARED[name].labels) for name in UNLABELLED.split()}
    for name, labels in specified.items():
        if name not in NOT_YET:
            assert scrape.kinds[name] == DECLARED[name].kind, name
            assert scrape.labels(name) == {frozenset(labels)}, name
    assert len(specified) == 20


def test_what_is_declared_is_told(scrape: Scrape) -> None:
    assert scrape.kinds.keys() == TOLD
    for name in scrape.kinds:
        assert scrape.kinds[name] == DECLARED[name].kind and scrape.labels(name) == {frozenset(DECLARED[name].labels)}, name


def test_the_node_s_view_is_what_its_daemons_say(web: Web, scrape: Scrape) -> None:
    own = [Scrape(get(address(web, daemon))) for daemon in ALL]
    assert {sample for one in own for sample in one.samples} >= scrape.samples.keys()
    assert Scrape(web.get("/v1/admin/metrics").body.decode()).samples.keys() == scrape.samples.keys()
    assert len(scrape.text.splitlines()) == len(set(scrape.text.splitlines())), "a sample or a heading comes twice"


# -- values ----------------------------------------------------------------------------------------

def test_values_of_the_log(web: Web, scrape: Scrape) -> None:
    folder = web.node.data / "logs" / "orders" / "0"
    assert scrape("messages_produced_total", topic="orders") == 5
    assert scrape("messages_produced_total", topic="later") == 3, "markers are no messages"
    assert scrape("log_size_bytes", topic="orders", partition="0") == sum(path.stat().st_size for path in folder.glob("*.log"))
    assert 0 < scrape("bytes_produced_total", topic="orders") < scrape("log_size_bytes", topic="orders", partition="0")
    assert scrape("bytes_consumed_total", topic="orders") >= scrape("bytes_produced_total", topic="orders"), "all were fetched"
    assert scrape("log_segments_total", topic="orders", partition="0") == 1
    assert scrape("produce_errors_total", topic="orders", error_type="sequence_gap") == 1
    assert scrape("produce_latency_seconds_count", topic="orders") >= 1
    assert 0 < scrape("produce_latency_seconds_sum", topic="orders") < 10
    assert scrape("log_append_latency_seconds_count", topic="orders", partition="0") >= 1
    assert scrape("log_append_latency_seconds_count", topic="orders", partition="1") == 0
    leaders = {dict(labels)["node"] for name, labels in scrape.samples if name == "goqueue_partition_leader"}
    assert len(leaders) == 1
    assert scrape("partition_leader", topic="orders", partition="1", node=leaders.pop()) == 1


def test_values_of_groups(scrape: Scrape) -> None:
    clerks, sleepers = {"group": "clerks", "topic": "orders"}, {"group": "sleepers", "topic": "slow"}
    at = {"partition": "0"}
    assert scrape("messages_consumed_total", **clerks) == 2, "a dead letter is not acked"
    assert scrape("consumer_lag", **clerks, **at) == 2
    assert scrape("messages_in_flight", **clerks, **at) == 1
    assert scrape("messages_retrying", **clerks, **at) == 1
    assert scrape("messages_ready", **clerks, **at) == 0
    assert scrape("dlq_total", topic="orders") == 1 and scrape("dlq_total", topic="slow") == 0
    assert scrape("redeliveries_total", **clerks) == 0 and scrape("redeliveries_total", **sleepers) == 1
    assert scrape("visibility_timeout_total", **clerks) == 0 and scrape("visibility_timeout_total", **sleepers) == 1
    assert scrape("messages_consumed_total", **sleepers) == 1 and scrape("messages_expired_total", **sleepers) == 0
    assert scrape("commit_latency_seconds_count", group="clerks") == 4, "ack, ack, reject, nack"
    assert scrape("commit_latency_seconds_count", group="sleepers") == 1
    assert 0 < scrape("commit_latency_seconds_sum", group="clerks") < 10
    assert scrape("end_to_end_latency_seconds_count", **clerks) == 2
    assert scrape("end_to_end_latency_seconds_count", **sleepers) == 1
    assert 0.2 <= scrape("end_to_end_latency_seconds_sum", **sleepers) < 20, "it timed out once before it was acked"
    assert scrape("rebalance_duration_seconds_count", group="clerks") >= 1
    assert scrape("group_members", group="clerks") == 0, "a one-shot poll leaves"


def test_values_of_priorities(scrape: Scrape) -> None:
    """The critical one is handed out first, and acked."""
    lane = {"group": "clerks", "topic": "orders", "partition": "0"}
    assert scrape("priority_enqueued_total", **lane, priority="critical") == 1
    assert scrape("priority_dequeued_total", **lane, priority="critical") == 1
    assert scrape("priority_enqueued_total", **lane, priority="normal") == 4
    assert scrape("priority_in_flight", **lane, priority="critical") == scrape("priority_ready", **lane, priority="critical") == 0
    assert scrape("priority_dequeued_total", **lane, priority="normal") == 1 + 1, "the acked one and the dead letter"
    assert scrape("priority_in_flight", **lane, priority="normal") == scrape("messages_in_flight", **lane)
    assert 0 < scrape("priority_last_served_seconds", **lane, priority="critical") < 60


def test_values_of_delays(scrape: Scrape) -> None:
    assert scrape("delay_scheduled", topic="later", partition="0") == 1
    assert scrape("delay_overdue", topic="later", partition="0") == 0
    assert scrape("delay_ready_total", topic="later") == 1
    assert scrape("delay_cancelled_total", topic="later") == 1
    assert scrape("delay_expired_total", topic="later") == 0
    assert scrape("delay_lateness_seconds_count", topic="later") == 1


def test_values_of_the_node(web: Web, scrape: Scrape) -> None:
    assert scrape("nodes_total", status="up") == len(ALL) - 1 and scrape("nodes_total", status="down") == 0
    assert scrape("topics") == len(web.node.client().topics())
    assert scrape("http_requests_total", method="POST", path="/topics", status="201") == 3
    assert scrape("http_request_seconds_count", method="POST", path="/topics") == 3
    assert scrape("grpc_requests_total", method="ListTopics", status="OK") == 2
    assert scrape("grpc_requests_total", method="Publish", status="INVALID_ARGUMENT") == 1
    assert scrape("grpc_request_seconds_count", method="ListTopics") == 2
    assert scrape("grpc_requests_total", method="Settle", status="OK") == 1 and scrape("grpc_streams", method="Settle") == 0
    assert scrape("requests_denied_total", daemon="metad", reason="unauthorized") >= 1
    assert scrape("requests_denied_total", daemon="metad", reason="forbidden") == 0
    for daemon in ALL:
        assert 0 < scrape("uptime_seconds", daemon=daemon) < 600
        assert scrape("requests_total", daemon=daemon) > 0


# -- alerts and dashboards ---------------------------------------------------------------------------

def alerts() -> list[tuple[str, str]]:
    return [(rule["alert"], rule["expr"]) for group in RULES["groups"] for rule in group["rules"]]


def panels() -> list[tuple[str, str]]:
    """(where, PromQL) of all dashboards; Grafana's variables stand for everything, its interval for a minute."""
    found = []
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", ()):
                expr = target["expr"].replace("$__rate_interval", "1m")
                found.append((f"{path.stem}: {panel['title']}", re.sub(r"\$\w+", ".*", expr)))
    return found


ASKED = alerts() + panels()


def families(expr: str) -> dict[str, set[str]]:
    """The series an expression names, each with the labels it is chosen by."""
    bare = re.sub(r'"[^"]*"', '""', expr)
    return {name: set(re.findall(r"(\w+)\s*[=!]", chosen or "")) for name, chosen in
            re.findall(r"\b((?:goqueue_\w+|up\b))(?:\{([^}]*)\})?", bare)}


def test_series_are_found_in_an_expression() -> None:
    assert families('sum by (up_to) (rate(goqueue_a_total{x=~"goqueue_no", y!="}"}[5m])) / up{job="goqueue"} > goqueue_b') == {
        "goqueue_a_total": {"x", "y"}, "up": {"job"}, "goqueue_b": set()}


@pytest.mark.parametrize(("where", "expr"), ASKED, ids=[f"{i}-{where}" for i, (where, _) in enumerate(ASKED)])
def test_what_is_asked_for_exists(scrape: Scrape, where: str, expr: str) -> None:
    asked = families(expr)
    assert asked, "an expression about nothing"
    known = {name: {label for label, _ in labels} for name, labels in scrape.samples}
    known["up"] = {"job", "instance"}              # Prometheus' own
    for name, labels in asked.items():
        assert name in known, f"{name} does not exist"
        assert labels <= known[name], f"{name} has no labels {labels - known[name]}"
    grouped = {label for words in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", expr) for label in re.findall(r"\w+", words)}
    assert grouped <= set().union(*(known[name] for name in asked)), "grouped by what is no label"


@pytest.mark.parametrize("rule", [rule for group in RULES["groups"] for rule in group["rules"]], ids=lambda rule: rule["alert"])
def test_an_alert_speaks_of_labels_it_has(scrape: Scrape, rule: dict[str, Any]) -> None:
    """Those that its last aggregation keeps, or all that the series has."""
    spoken = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
    kept = set(re.findall(r"\w+", " ".join(re.findall(r"\bby \(([^)]*)\)", rule["expr"])))) - {"le"}
    if not kept:
        kept = {"job", "instance"}.union(*({label for label, _ in labels} for name, labels in scrape.samples
                                           if name in families(rule["expr"])))
    assert spoken <= kept, "says nothing where that stands"
    assert rule["labels"]["severity"] in ("warning", "critical") and rule["annotations"].keys() == {"summary", "description"}


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_can_be_provisioned(path: Path) -> None:
    found = json.loads(path.read_text())
    assert found["uid"] == path.stem and "id" not in found and found["schemaVersion"] >= 36
    names = {variable["name"] for variable in found["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", path.read_text())) - {"__rate_interval", "__all"}
    assert used <= names, "variables that do not exist"
    ids = [panel["id"] for panel in found["panels"]]
    assert len(ids) == len(set(ids))
    cells = [(x, y) for panel in found["panels"] for at in [panel["gridPos"]]
             for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24, "panels lie on each other"


# -- Prometheus itself ---------------------------------------------------------------------------------

def tool(name: str) -> str:
    """Its path. In CI it must be there."""
    found = shutil.which(name)
    if found is None and not os.environ.get("CI"):
        pytest.skip(f"no {name}: apt-get install --no-install-recommends prometheus")
    assert found, f"no {name}"
    return found


def test_prometheus_takes_its_files(tmp_path: Path) -> None:
    for path in (ETC / "prometheus").glob("*.yml"):
        shutil.copy(path, tmp_path)
    (tmp_path / "goqueue.key").write_text("gq_")
    shutil.copy(self_signed(tmp_path, "ca").certificate, tmp_path / "goqueue-ca.pem")
    for what in (["config", tmp_path / "prometheus.yml"], ["config", tmp_path / "prometheus-remote.yml"],
                 ["rules", tmp_path / "goqueue.rules.yml"]):
        done = subprocess.run([tool("promtool"), "check", *map(str, what)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(alerts())} rules found" in done.stdout


def test_alerts_fire_when_they_should() -> None:
    case = Path(__file__).parent / "alerts.yml"
    done = subprocess.run([tool("promtool"), "test", "rules", str(case)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [name for name, _ in alerts() if f'"{name}"' not in case.read_text()] == [], "alerts without a test"


class Prometheus:
    """A process that scrapes `target` every half second, with the shipped configuration otherwise."""

    def __init__(self, folder: Path, target: str, file: str = "prometheus.yml", shipped: str = "127.0.0.1:9090") -> None:
        text = (ETC / "prometheus" / file).read_text()
        assert shipped in text
        (folder / "prometheus.yml").write_text(text.replace(shipped, target).replace("interval: 15s", "interval: 500ms"))
        shutil.copy(ETC / "prometheus" / "goqueue.rules.yml", folder)
        self.address = f"127.0.0.1:{free_port()}"
        self.said = folder / "said"
        with self.said.open("wb") as out:
            self.process = subprocess.Popen(
                [tool("prometheus"), f"--config.file={folder / 'prometheus.yml'}", f"--web.listen-address={self.address}",
                 f"--storage.tsdb.path={folder / 'data'}"], stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def api(self, path: str, **query: str) -> Any:
        answer = json.loads(get(self.address, f"/api/v1/{path}?{urllib.parse.urlencode(query)}"))
        assert answer["status"] == "success"
        return answer["data"]

    def ask(self, expr: str) -> list[dict[str, Any]]:
        return self.api("query", query=expr)["result"]  # type: ignore[no-any-return]

    def ready(self) -> bool:
        assert self.process.poll() is None, self.said.read_text()
        try:
            get(self.address, "/-/ready")
        except (OSError, AssertionError):
            return False
        return bool(self.ask('up{job="goqueue"} == 1'))

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def prometheus(web: Web, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    made = Prometheus(tmp_path_factory.mktemp("prometheus"), address(web))
    try:
        until(made.ready, "Prometheus has scraped the node")
        yield made
    finally:
        made.stop()


def test_prometheus_scrapes_the_node(web: Web, prometheus: Prometheus) -> None:
    [found] = prometheus.ask('goqueue_messages_produced_total{topic="orders"}')
    assert found["metric"]["job"] == "goqueue" and float(found["value"][1]) == 5
    publish(web, "orders", "fg")
    until(lambda: float(prometheus.ask('goqueue_messages_produced_total{topic="orders"}')[0]["value"][1]) == 7, "it scrapes again")
    [target] = prometheus.api("targets")["activeTargets"]
    assert target["health"] == "up" and target["lastError"] == ""
    told = {name: found["type"] for name, [found] in prometheus.api("metadata").items() if name.startswith("goqueue_")}
    assert told == {name: DECLARED[name].kind for name in TOLD}


def test_prometheus_understands_what_is_asked_for(prometheus: Prometheus) -> None:
    """And of what the dashboards show nothing is empty but what has to do with nothing."""
    until(lambda: prometheus.ask("count_over_time(up[1m]) > 3"), "there are rates")
    empty = [where for where, expr in panels() if not prometheus.ask(expr)]
    assert empty == []
    for _, expr in alerts():
        prometheus.ask(expr)


def test_no_alert_for_a_node_that_is_well(prometheus: Prometheus) -> None:
    rules = [rule for group in prometheus.api("rules")["groups"] for rule in group["rules"]]
    assert len(rules) == len(alerts())
    until(lambda: all(rule["health"] == "ok" for group in prometheus.api("rules")["groups"] for rule in group["rules"]),
          "every rule was evaluated")
    down = {"GoQueueUnreachable", "GoQueueDaemonMissing", "GoQueueDaemonDown", "GoQueuePartitionWithoutLeader", "GoQueueClockSet",
            "GoQueueMessagesLost", "GoQueueDelaysOverdue"}
    assert [rule["name"] for rule in rules if rule["name"] in down and rule["state"] != "inactive"] == []


# -- from other machines ---------------------------------------------------------------------------------

class Watched:
    """A node whose metrics, and HTTPS, other machines reach; keys that may and may not read them."""

    def __init__(self, folder: Path) -> None:
        pair = self_signed(folder, "node")
        at = {name: f"0.0.0.0:{free_port()}" for name in ("METRICS", *(f"{daemon.upper()}_METRICS" for daemon in ALL))}
        self.web = Web(folder, GOQUEUE_HTTP_ADDR="0.0.0.0:0", GOQUEUE_HTTP_TLS_CERT=pair.certificate, GOQUEUE_HTTP_TLS_KEY=pair.key,
                       **{f"GOQUEUE_{name}_ADDR": address for name, address in at.items()})
        self.addresses = [address.replace("0.0.0.0", "127.0.0.1") for address in at.values()]
        self.watch, self.shop = (self.web.node.gqctl("key", "create", name, "--allow", scope, "-o", "value").stdout.decode().strip()
                                 for name, scope in (("watch", "metrics"), ("shop", "publish")))
        (folder / "goqueue.key").write_text(self.watch + "\n")
        shutil.copy(pair.certificate, folder / "goqueue-ca.pem")
        self.web.start()


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    made = Watched(tmp_path_factory.mktemp("watched"))
    try:
        yield made
    finally:
        made.web.stop()


def test_public_metrics_want_a_key_that_may_read_them(watched: Watched) -> None:
    for address in watched.addresses:
        for key, status in (("", 401), ("nonsense", 401), (watched.shop, 403), (watched.watch, 200)):
            line = http.client.HTTPConnection(address, timeout=20)
            line.request("GET", "/metrics", headers={"Authorization": f"Bearer {key}"} if key else {})
            answer = line.getresponse()
            body = answer.read()
            line.close()
            assert answer.status == status and (b"goqueue_uptime_seconds{" in body) == (status == 200), (address, body)
            series = [line.rpartition(b" ")[0] for line in body.splitlines() if not line.startswith(b"#")]
            assert len(series) == len(set(series)) or status != 200, "a sample comes twice"
            assert (answer.headers["WWW-Authenticate"] == "Bearer") == (status == 401)
        assert get(address, "/health") == "alive\n"


def test_prometheus_scrapes_it_from_elsewhere(watched: Watched) -> None:
    """All daemons: the gateway reads theirs with the node's own key."""
    made = Prometheus(watched.web.node.folder, f"localhost:{watched.web.port}", "prometheus-remote.yml", "node.example.org:8080")
    try:
        until(made.ready, "Prometheus has scraped the node")
        assert {found["metric"]["daemon"] for found in made.ask("goqueue_uptime_seconds")} == set(ALL)
        denied = {found["metric"]["daemon"] for found in made.ask('goqueue_requests_denied_total{reason="forbidden"} >= 1')}
        assert denied == set(ALL)
    finally:
        made.stop()


def test_who_wants_them_open_says_so(tmp_path: Path) -> None:
    with Node(tmp_path, env={"GOQUEUE_METAD_METRICS_ADDR": f"0.0.0.0:{free_port()}", "GOQUEUE_METRICS_OPEN": "true"}) as node:
        node.start("metad")
        assert "goqueue_uptime_seconds{" in get(node.env["GOQUEUE_METAD_METRICS_ADDR"].replace("0.0.0.0", "127.0.0.1"))
        node.terminate()
        del node.env["GOQUEUE_METRICS_OPEN"]
        node.start("metad", wait=False)
        assert node.processes["metad"].wait(20) == 2
        assert "metrics.listeners.metad" in node.log("metad") and "metrics.open" in node.log("metad")
