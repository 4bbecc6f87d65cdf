"""Options: every source, every kind, every refusal; and etc/goqueue.yaml says what the options say."""

import importlib
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gq_proto.errors import BadConfig
from gq_run import settings
from gq_run.options import (
    BOOL,
    BYTES,
    DURATION,
    INT,
    TEXT,
    Config,
    Option,
    load,
    parse_duration,
    parse_size,
    read_file,
    sample,
)

SHIPPED = Path(__file__).parents[3] / "etc" / "goqueue.yaml"
HEAD = """\
# Every option with its default. ${NAME:default} stands for the environment variable NAME, and the default where that is not set
# or empty. Sizes: 65536, 64KiB, 1GiB. Durations: 500ms, 30s, 2h, 7d; a bare number is seconds. An unknown key is an error.
# Daemons read the file that --config or GOQUEUE_CONFIG names, else goqueue.yaml in the data directory, else none: a file
# may hold just the keys that differ. A flag goes before the environment, that before this file: see `gq_logd --help`.
# How a client batches, how much it polls and how long it waits is its own: see gq_client.
"""
DAEMONS = ("metad", "logd", "groupd", "delayd", "gateway")
OPTIONS = (
    Option("broker.dataDir", "", TEXT, "where", name="data-dir"),
    Option("storage.segmentSize", 1024, BYTES, "size", 10, 4096),
    Option("storage.fsync.mode", "interval", TEXT, "when", choices=("none", "interval", "every")),
    Option("storage.keep", -1, INT, "how many", -1),
    Option("session.timeout", 30_000, DURATION, "how long", 1, 60_000),
    Option("session.on", True, BOOL, "whether"),
    Option("metad.own", 1, INT, "mine"),
)


def config(tmp_path: Path, text: str = "", *argv: str, **environ: str) -> Config:
    path = tmp_path / "goqueue.yaml"
    path.write_text(text)
    return load("metad", OPTIONS, argv, environ, str(tmp_path))


def all_options() -> list[Option]:
    own = [importlib.import_module(f"gq_{daemon}.options").OPTIONS for daemon in DAEMONS]
    return [*settings.SHARED, *(option for options in own for option in options)]


def test_names_are_derived() -> None:
    assert OPTIONS[2].flag == "--storage-fsync-mode"
    assert OPTIONS[2].env == "GOQUEUE_STORAGE_FSYNC_MODE"
    assert OPTIONS[1].flag == "--storage-segment-size"
    assert (OPTIONS[0].flag, OPTIONS[0].env) == ("--data-dir", "GOQUEUE_DATA_DIR")


def test_the_first_of_flag_environment_yaml_default_counts(tmp_path: Path) -> None:
    text = "storage: {segmentSize: 100}"
    env = {"GOQUEUE_STORAGE_SEGMENT_SIZE": "200"}
    assert config(tmp_path)["storage.segmentSize"] == 1024
    assert config(tmp_path, text)["storage.segmentSize"] == 100
    assert config(tmp_path, text, **env)["storage.segmentSize"] == 200
    assert config(tmp_path, text, "--storage-segment-size", "300", **env)["storage.segmentSize"] == 300


def test_the_file_is_the_named_one_or_the_data_directorys(tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("storage: {keep: 5}")
    assert config(tmp_path, "storage: {keep: 4}").file == str(tmp_path / "goqueue.yaml")
    assert config(tmp_path, "storage: {keep: 4}", "--config", str(other))["storage.keep"] == 5
    assert config(tmp_path, "storage: {keep: 4}", GOQUEUE_CONFIG=str(other))["storage.keep"] == 5
    elsewhere = tmp_path / "data"
    elsewhere.mkdir()
    (elsewhere / "goqueue.yaml").write_text("storage: {keep: 6}")
    assert config(tmp_path, "storage: {keep: 4}", "--data-dir", str(elsewhere))["storage.keep"] == 6
    with pytest.raises(BadConfig, match=r"cannot read the config .*missing\.yaml"):
        config(tmp_path, "", "--config", str(tmp_path / "missing.yaml"))


@pytest.mark.parametrize(("text", "says"), [
    ("storage: {segmentSiez: 1}", r"unknown key storage\.segmentSiez: did you mean storage\.segmentSize\?"),
    ("nonsense: 1", "unknown key nonsense"),
    ("storage: {fsync: {mode: sometimes}}", r"storage\.fsync\.mode .*'sometimes': use none, interval or every"),
    ("storage: {segmentSize: 9}", r"storage\.segmentSize .*'9': use 10 to 4KiB"),
    ("storage: {segmentSize: 5KiB}", "use 10 to 4KiB"),
    ("storage: {segmentSize: 10 miles}", "use a size such as"),
    ("storage: {keep: -2}", r"storage\.keep .*use -1 \(unlimited\) or more"),
    ("storage: {keep: 1.5}", "use a whole number"),
    ("storage: {keep: true}", "use a whole number"),
    ("storage: {keep: []}", "use a whole number"),
    ("storage: 3", "storage must be a mapping"),
    ("- 1", "the file must be a mapping"),
    ("session: {on: maybe}", "use true or false"),
    ("session: {timeout: 2h}", r"use 1ms to 1m"),
    ("session: {timeout: 2 fortnights}", "use a duration such as"),
    ("session: {timeout: 0.0001}", "smallest unit"),
    ("broker: {dataDir: [a]}", "use one line of text"),
    ("metad: {other: 1}", r"unknown key metad\.other"),
    ("a: b: c", "cannot read the config"),
    ("storage: {keep: 1}\nstorage: {keep: 2}", "the key storage is there twice"),
    ("1: 2", "unknown key 1"),
    ("[1, 2]: 2", "a key must be a name"),
    ("storage: {keep: '${NOT_SET}'}", "needs the environment variable NOT_SET"),
])
def test_refusals_name_the_key_and_what_is_legal(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadConfig, match=says):
        config(tmp_path, text)


@pytest.mark.parametrize(("key", "says"), settings.ELSEWHERE.items())
def test_what_each_client_decides_is_refused_with_the_place_where_it_is_set(tmp_path: Path, key: str, says: str) -> None:
    section, _, name = key.partition(".")
    (tmp_path / "goqueue.yaml").write_text(f"{section}: {{{name or 'lingerMs'}: 5}}")
    with pytest.raises(BadConfig, match=re.escape(f"{key} is not a node's to set: {says}")):
        load("metad", settings.SHARED, [], {}, str(tmp_path), settings.ELSEWHERE)


def test_a_bad_environment_or_flag_is_named_too(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"storage\.keep \(from GOQUEUE_STORAGE_KEEP\) is 'x'"):
        config(tmp_path, GOQUEUE_STORAGE_KEEP="x")
    with pytest.raises(BadConfig, match=r"storage\.keep \(from --storage-keep\)"):
        config(tmp_path, "", "--storage-keep", "x")
    with pytest.raises(SystemExit) as exit:
        config(tmp_path, "", "--nonsense")
    assert exit.value.code == 2


def test_sections_of_other_daemons_are_theirs_to_check(tmp_path: Path) -> None:
    assert config(tmp_path, "logd: {anything: {goes: 1}}\nmetad: {own: 7}")["metad.own"] == 7


def test_variables_are_expanded(tmp_path: Path) -> None:
    text = "storage: {keep: '${KEEP:7}'}\nbroker: {dataDir: '${A:/a}/${B:b}'}"
    assert (config(tmp_path, text)["storage.keep"], config(tmp_path, text)["broker.dataDir"]) == (7, "/a/b")
    found = config(tmp_path, text, KEEP="8", A="/x:y", B="")
    assert (found["storage.keep"], found["broker.dataDir"]) == (8, "/x:y/b")


def test_empty_sections_and_values_are_the_defaults(tmp_path: Path) -> None:
    found = config(tmp_path, "storage:\nsession:\n  on:\nbroker:\n  dataDir: ${NOTHING:}\nmetad:\n")
    assert all(found.is_default(key) for key in found)


def test_scalars_are_what_their_option_makes_of_them(tmp_path: Path) -> None:
    found = config(tmp_path, "broker: {dataDir: off}\nstorage: {keep: 010}\nsession: {on: off, timeout: 0.5}")
    assert [found[key] for key in ("broker.dataDir", "storage.keep", "session.on", "session.timeout")] == ["off", 10, False, 500]


def test_spelling_out_a_default_is_no_choice(tmp_path: Path) -> None:
    assert config(tmp_path, "storage: {segmentSize: 1KiB}").is_default("storage.segmentSize")
    assert not config(tmp_path, "storage: {segmentSize: 2KiB}").is_default("storage.segmentSize")


def test_a_key_nobody_declared_is_a_bug(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        config(tmp_path).number("storage.other")


@pytest.mark.parametrize(("raw", "value"), [
    (5, 5), ("5", 5), ("64KiB", 65536), ("1 MiB", 1 << 20), ("1.5kb", 1500), ("2gib", 2 << 30), (-1, -1)])
def test_sizes(raw: object, value: int) -> None:
    assert parse_size(raw) == value


@pytest.mark.parametrize(("raw", "value"), [
    (5, 5000), ("5", 5000), (0.25, 250), ("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000), ("7d", 604_800_000),
    (-1, -1), ("-1", -1)])
def test_durations(raw: object, value: int) -> None:
    assert parse_duration(raw) == value


@pytest.mark.parametrize("raw", ["", "s", "1x", "1e3", None, True, [], {}, "1s 2s", "\u0661s", "9" * 40])
def test_no_sizes_and_no_durations(raw: object) -> None:
    for parse in (parse_size, parse_duration):
        with pytest.raises(ValueError, match="use a"):
            parse(raw)


@given(st.integers(-1, 2**50), st.sampled_from([BYTES, DURATION, INT]))
def test_what_is_shown_is_read_back(value: int, kind: str) -> None:
    option = Option("a.b", 0, kind, "")
    assert option.parse(option.show(value)) == value


def test_no_option_is_declared_twice_and_each_says_what_it_does() -> None:
    options = all_options()
    for names in ([o.key for o in options], [o.flag for o in options], [o.env for o in options]):
        assert len(set(names)) == len(names)
    for option in options:
        assert option.help and "\n" not in option.help
        assert option.parse(option.show(option.default)) == option.default, option.key


def test_the_names_of_the_specification() -> None:
    envs = {option.env for option in settings.SHARED}
    assert {"GOQUEUE_NODE_ID", "GOQUEUE_DATA_DIR", "GOQUEUE_LOG_LEVEL", "GOQUEUE_LOG_FORMAT"} <= envs


def test_the_shipped_file_is_the_options(request: pytest.FixtureRequest) -> None:
    text = sample(all_options(), HEAD)
    if request.config.getoption("--rewrite"):
        SHIPPED.write_text(text)
    assert SHIPPED.read_text() == text


@pytest.mark.parametrize("daemon", DAEMONS)
def test_the_shipped_file_is_legal_and_changes_nothing(daemon: str) -> None:
    own = importlib.import_module(f"gq_{daemon}.options").OPTIONS
    found = load(daemon, [*settings.SHARED, *own], ["--config", str(SHIPPED)], {}, "/nowhere")
    assert all(found.is_default(key) for key in found)
    assert yaml.safe_load(SHIPPED.read_text()).keys() >= {"broker", "storage", "defaults", "metrics", "logging"}


def test_the_shipped_file_takes_the_environment() -> None:
    by_key = {option.key: option for option in all_options()}
    environ = {option.env: "x" for option in by_key.values() if option.kind == TEXT and not option.choices}
    found = read_file(str(SHIPPED), "metad", by_key, environ)
    assert found["broker.nodeId"] == "x" and found["metrics.listeners.logd"] == "x"
