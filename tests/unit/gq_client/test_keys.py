"""Which keys a client uses, and with whom it speaks CURVE."""

import pytest
import zmq

import gq_client
from gq_client import node
from gq_proto import messages as m
from gq_proto.errors import BadRequest

METAD, LOGD = (zmq.curve_keypair() for _ in range(2))
KEY, LOGD_KEY = METAD[0].decode(), LOGD[0].decode()


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (node.SERVER_ENV, node.KEY_ENV, node.CURVE_ENV):
        monkeypatch.delenv(name, raising=False)


def test_arguments_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(node.KEY_ENV, " from-env\n")
    monkeypatch.setenv(node.CURVE_ENV, LOGD_KEY)
    routes = node.find(server="host:7400")
    assert (routes.bootstrap_key, node.token_of(None, routes)) == (LOGD_KEY, b"from-env")
    routes = node.find(server="host:7400", curve_server_key=KEY)
    assert (routes.bootstrap_key, node.token_of("mine", routes), node.token_of("", routes)) == (KEY, b"mine", b"")


def test_a_node_on_this_machine_is_not_given_the_key_that_is_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(node.KEY_ENV, "from-env")
    monkeypatch.setenv(node.CURVE_ENV, KEY)
    routes = node.find(data_dir="/nowhere")
    assert node.token_of(None, routes) == b"" and routes.server_key(routes.bootstrap[0]) == ""
    assert node.token_of("mine", routes) == b"mine"


def test_every_daemons_key_comes_with_the_routes() -> None:
    routes = node.find(server="host:7400", curve_server_key=KEY)
    daemons = [m.DaemonMeta("n", "metad", ["ipc:///m", "tcp://host:7400"], 1, LOGD_KEY),
               m.DaemonMeta("n", "logd", ["ipc:///l", "tcp://host:7410"], 1, LOGD_KEY),
               m.DaemonMeta("n", "groupd", ["ipc:///g", "tcp://host:7420"], 1)]
    routes.merge(m.MetadataReply(1, [], [], daemons, "c"))
    assert routes.server_key("tcp://host:7400") == KEY           # what the caller named counts
    assert routes.server_key("tcp://host:7410") == LOGD_KEY
    assert routes.server_key("tcp://host:7420") == routes.server_key("ipc:///l") == routes.server_key("tcp://elsewhere:1") == ""


@pytest.mark.parametrize("options", [{"curve_server_key": "short"}, {"curve_pair": (KEY, "short")}])
def test_what_is_no_curve_key_is_refused_at_once(options: dict[str, object]) -> None:
    with pytest.raises(BadRequest, match="CURVE"):
        gq_client.Client("host:7400", **options)                 # type: ignore[arg-type]


def test_a_pair_of_ones_own_is_used() -> None:
    routes = node.find(server="host:7400", curve_server_key=KEY, curve_pair=(LOGD_KEY, LOGD[1].decode()))
    assert routes.pair == LOGD
