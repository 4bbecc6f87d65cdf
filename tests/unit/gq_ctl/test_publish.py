"""publish against a client that notes what it is asked: everything but the node."""

import io
import json
import time
from collections import namedtuple
from types import SimpleNamespace

import pytest

from gq_client.draft import due_header
from gq_ctl import app, lines
from gq_ctl.units import show_time
from gq_proto import limits
from gq_proto.errors import UnknownTopic
from gq_proto.messages import TopicConfig

Published = namedtuple("Published", "partition offset timestamp")


class Fake:
    def __init__(self):
        self.sent, self.options = [], {}
        self.flushed = 0
        self.config = None

    def topic(self, name):
        if self.config is None:
            raise UnknownTopic(name)
        return SimpleNamespace(config=self.config)

    def publish(self, topic, value, **options):
        self.sent.append((topic, value, options))
        return Published(1, 41 + len(self.sent), 5)

    def producer(self, **options):
        self.options = options
        return self

    def send(self, topic, value, **options):
        self.sent.append((topic, value, options))

    def flush(self):
        self.flushed = len(self.sent)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture
def run(monkeypatch, capfd):
    client = Fake()
    monkeypatch.setattr(app.Settings, "client", lambda self, **options: client)

    def run(*argv, stdin=b""):
        monkeypatch.setattr(lines, "read_stdin", io.BytesIO(stdin).read)
        client.sent.clear()
        code = app.run(["publish", *argv])
        said = capfd.readouterr()
        return code, said.out, said.err

    run.client = client
    return run


def values(run):
    return [value for _, value, _ in run.client.sent]


def test_one_message_with_everything(run):
    code, out, _ = run("t", "v", "--key", "k", "-H", "a=b", "--priority", "low", "--partition", "1", "--delay", "1500ms",
                       "--compress", "zstd", "--acks", "all", "-o", "value")
    assert (code, out) == (0, "1 42\n")
    assert run.client.sent == [("t", b"v", {"key": b"k", "headers": [("a", b"b")], "priority": 3, "partition": 1, "delay": 1.5,
                                            "compress": "zstd", "acks": "all"})]
    code, out, _ = run("t", "v")
    assert json.loads(out) == {"topic": "t", "partition": 1, "offset": 42}


def test_stdin_whole_empty_and_null(run):
    run("t", "-", stdin=b"a\0\nb\n")
    assert values(run) == [b"a\0\nb\n"]
    run("t", "-")
    assert values(run) == [b""]
    run("t", "")
    assert values(run) == [b""]
    run("t", "--null")
    assert values(run) == [None]


def test_lines_are_sent_and_flushed_before_the_summary(run):
    code, out, _ = run("t", "-l", stdin=b"a\r\n\nb")
    summary = json.loads(out)
    assert code == 0 and values(run) == [b"a", b"", b"b"] and run.client.flushed == 3
    assert (summary["published"], summary["bytes"]) == (3, 2)


def test_keys_stand_before_the_separator_and_a_line_without_it_has_the_options_key(run):
    run("t", "-l", "--key-separator", "::", "--key", "d", stdin=b"a::1\nb::2::3\nnone\n::x\n")
    assert [(options["key"], value) for _, value, options in run.client.sent] == [
        (b"a", b"1"), (b"b", b"2::3"), (b"d", b"none"), (b"", b"x")]


def test_a_long_line_is_named_and_what_was_before_it_is_flushed(run):
    code, out, err = run("t", "-l", stdin=b"a\nb\n" + b"x" * (limits.VALUE_MAX + 1) + b"\nc\n")
    assert code == 1 and out == "" and values(run) == [b"a", b"b"] and run.client.flushed == 2
    assert err.startswith("gqctl: line 3 is longer") and "the 2 before it were published, nothing after it" in err
    run.client.config = TopicConfig(max_message_bytes=5)
    assert run("t", "-l", stdin=b"12345\n123456\n")[0] == 1
    assert values(run) == [b"12345"]


def test_json_lines(run):
    code, _, err = run("t", "--jsonl", "--priority", "4", "--key", "k",
                       stdin=b'{"value": "a", "key": "own"}\n\n{"value": {"b": 1}, "priority": 0}\n{"value": 1, "nope": 2}\n')
    assert code == 1 and "line 4: unknown field 'nope'" in err and "the 2 before it" in err
    assert [(value, options["key"], options["priority"]) for _, value, options in run.client.sent] == [
        (b"a", b"own", 4), (b'{"b":1}', b"k", 0)]
    assert "line 1: " in run("t", "--jsonl", stdin=b"{\n")[2]
    assert "line 1: " in run("t", "--jsonl", stdin=b"\xff\n")[2]
    assert "nested too deep" in run("t", "--jsonl", stdin=b"[" * 100_000 + b"\n")[2]


def told(run):
    """What the message that was sent said of its time, and that the client makes something of it."""
    [(_, _, options)] = run.client.sent
    due_header(options.get("delay"), options.get("deliver_at"), time.time_ns() // 1000)
    return options.get("delay", options.get("deliver_at"))


@pytest.mark.parametrize(("text", "number", "seconds"), [
    ("-1", -1, 0), ("-1s", -1.5, 0), ("-1ms", -0.001, 0), ("0", 0, 0), ("1ms", 0.001, 0.001), ("0.5ms", 0.0005, 0.001),
    ("671088640ms", 671088.64, 671088.64)])
def test_delays_by_option_and_by_line(run, text, number, seconds):
    for argv, line in ((("v", "--delay", text), b""), (("-l", "--delay", text), b"v\n"),
                       (("--jsonl", "--delay", text), b'{"value": ""}\n'),
                       (("--jsonl",), json.dumps({"value": "", "delay": number}).encode()),
                       (("--jsonl",), json.dumps({"value": "", "delay": text}).encode())):
        assert run("t", *argv, stdin=line)[0] == 0 and told(run) == seconds


@pytest.mark.parametrize("seconds", ["671088.641", "2147483648", "4294967295", "4294967296", "315360000", "9223372036854775808"])
def test_delays_that_are_too_long(run, seconds):
    at = f"{int(time.time()) + 1 + float(seconds):.3f}"
    for argv, line in ((("v", "--delay", seconds), b""), (("v", "--delay", f"{seconds}s"), b""), (("v", "--at", at), b""),
                       (("-l", "--delay", seconds), b"v\n"), (("--jsonl", "--at", at), b'{"value": ""}\n')):
        code, _, err = run("t", *argv, stdin=line)
        assert code == 2 and run.client.sent == [] and err.count("\n") == 1, "usage"
    for name, said in (("delay", float(seconds)), ("delay", f"{seconds}s"), ("deliver_at", float(at)), ("deliverAt", at)):
        code, _, err = run("t", "--jsonl", stdin=json.dumps({"value": "", name: said}).encode())
        assert code == 1 and run.client.sent == [] and "line 1: " in err and "the 0 before it were published" in err


@pytest.mark.parametrize("text", ["NaN", "nan", "inf", "-inf", "-", "soon", "1y", ""])
def test_what_is_no_time_at_all(run, text):
    for option in ("--delay", "--at"):
        assert run("t", "v", option, text)[0] == 2 and run.client.sent == []
    for name in ("delay", "deliver_at"):
        code, _, err = run("t", "--jsonl", stdin=json.dumps({"value": "", name: text}).encode())
        assert code == 1 and run.client.sent == [] and "line 1: " in err
    for number in (b"NaN", b"Infinity", b"1e999", b"-1e999", b"true"):
        assert run("t", "--jsonl", stdin=b'{"value": "", "delay": %b}' % number)[0] == 1 and run.client.sent == []


@pytest.mark.parametrize("text", ["-1h", "-5", "0", "now", "2020-01-01", "@1.5"])
def test_times_that_are_past(run, text):
    assert run("t", "v", "--at", text)[0] == 0 and told(run) <= time.time()


def test_times_ahead(run):
    for ahead in ("+5m", "+671088640ms", show_time(time.time_ns() // 1000 + 300_000_000)):
        before = time.time()
        assert run("t", "v", "--at", ahead)[0] == 0 and told(run) > before + 299


def test_what_a_line_says_of_its_time_holds_against_either_option(run):
    for argv in (("--delay", "1m"), ("--at", "+1m")):
        assert run("t", "--jsonl", *argv, stdin=b'{"value": "", "delay": 5}\n{"value": "", "deliver_at": 5}\n{"value": ""}')[0] == 0
        own, fixed, default = (options for _, _, options in run.client.sent)
        assert own["delay"] == 5 and "deliver_at" not in own and fixed["deliver_at"] == 5 and "delay" not in fixed
        assert ("delay" in default) != ("deliver_at" in default)


@pytest.mark.parametrize("argv", [
    (), ("v", "-l"), ("v", "--null"), ("v", "--key-separator", ":"), ("-l", "--key-separator", ""), ("v", "--keep-cr"),
    ("v", "--delay", "1s", "--at", "now"), ("v", "-H", "x"), ("v", "-H", "gq-a=1"), ("v", "--priority", "5"),
    ("v", "--acks", "two"),
])
def test_usage(run, argv):
    code, out, err = run("t", *argv)
    assert code == 2 and out == "" and err.count("\n") == 1 and "gqctl publish --help" in err
