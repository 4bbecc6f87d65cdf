"""Options: one declaration each; flag, YAML key, environment name, --help and etc/goqueue.yaml are derived from it.

    Option("storage.fsync.mode", "interval", TEXT, "when appended data is forced to the disk", choices=(...))
      YAML         storage: {fsync: {mode: every}}
      flag         --storage-fsync-mode every
      environment  GOQUEUE_STORAGE_FSYNC_MODE=every
    (name="data-dir" replaces the derived part of flag and environment name: --data-dir, GOQUEUE_DATA_DIR)

The first of flag, environment, YAML, default counts. In YAML `${NAME:default}` stands for an environment variable. Every value
is checked, wherever it came from: an unknown key, a malformed or an out-of-range value is a BadConfig that names the key, its
source and what is legal. A daemon gives `load` the shared options (settings.py) and its own, whose keys begin with its name
("logd.flushMessages"); sections named after other daemons are theirs to check.
"""

import argparse
import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import yaml

from gq_proto import __version__
from gq_proto.errors import BadConfig

TEXT: Final = "text"
INT: Final = "int"
BOOL: Final = "bool"
BYTES: Final = "bytes"          # an int; written 65536, 64KiB, 1 MiB
DURATION: Final = "duration"    # an int of milliseconds; written 30s, 500ms, 7d, or a number of seconds
UNLIMITED: Final = -1           # of sizes and times, where the range begins with it

CONFIG_ENV: Final = "GOQUEUE_CONFIG"
CONFIG_NAME: Final = "goqueue.yaml"      # looked for in the data directory when none is named
DAEMONS: Final = ("metad", "logd", "groupd", "delayd", "txnd", "traced", "gateway")

_SIZES: Final = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
                 "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_TIMES_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_NUMBER_UNIT: Final = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", re.ASCII)
_BOOLS: Final = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::([^}]*))?\}")


@dataclass(frozen=True)
class Option:
    """One option. `low` and `high` bound numbers, both inclusive; `choices` are the legal texts."""

    key: str
    default: str | int | bool
    kind: str
    help: str
    low: int | None = None
    high: int | None = None
    choices: tuple[str, ...] = ()
    name: str = ""

    @property
    def flag(self) -> str:
        return "--" + (self.name or _kebab(self.key))

    @property
    def env(self) -> str:
        return "GOQUEUE_" + (self.name or _kebab(self.key)).replace("-", "_").upper()

    def parse(self, raw: object) -> str | int | bool:
        """The value that `raw` (from YAML, or text) stands for; ValueError says what is legal."""
        value: str | int | bool = _PARSERS[self.kind](raw)
        if self.choices and value not in self.choices:
            raise ValueError(f"use {', '.join(self.choices[:-1])} or {self.choices[-1]}")
        if self.kind in (INT, BYTES, DURATION):
            self._check_range(int(value))
        return value

    def _check_range(self, value: int) -> None:
        if (self.low is None or value >= self.low) and (self.high is None or value <= self.high):
            return
        raise ValueError(f"use {self.range}")

    @property
    def range(self) -> str:
        """For people: "64KiB to 1GiB", "-1 (unlimited) or more"."""
        low = "-1 (unlimited)" if self.low == UNLIMITED else "" if self.low is None else self.show(self.low)
        if self.high is None:
            return f"{low} or more" if low else ""
        return f"{low} to {self.show(self.high)}" if low else f"{self.show(self.high)} or less"

    def show(self, value: object) -> str:
        """A value as one would write it in YAML; parse(show(v)) == v."""
        if self.kind == BYTES:
            return _with_unit(int(str(value)), (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)), "")
        if self.kind == DURATION:
            units = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))
            return _with_unit(int(str(value)), units, "ms")
        return str(value).lower() if self.kind == BOOL else str(value)


class Config(Mapping[str, Any]):
    """Checked values by key; text(), number() and switch() tell the type checker. A key nobody declared is a bug (KeyError)."""

    def __init__(self, options: Sequence[Option], given: Mapping[str, Any], file: str = "") -> None:
        self.options = {option.key: option for option in options}
        assert len(self.options) == len(options), "an option is declared twice"
        assert given.keys() <= self.options.keys()
        self._values = {option.key: given.get(option.key, option.default) for option in options}
        self.file = file                 # the YAML file, "" when there was none

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def text(self, key: str) -> str:
        return str(self._values[key])

    def number(self, key: str) -> int:
        value = self._values[key]
        assert isinstance(value, int)
        return value

    def switch(self, key: str) -> bool:
        return bool(self._values[key])

    def is_default(self, key: str) -> bool:
        """A value spelled out that equals the default counts as the default: the shipped config spells all of them out."""
        return bool(self._values[key] == self.options[key].default)


# -- loading ---------------------------------------------------------------------------

def load(program: str, options: Sequence[Option], argv: Sequence[str], environ: Mapping[str, str],
         default_data_dir: str, elsewhere: Mapping[str, str] = MappingProxyType({})) -> Config:
    """The config of one daemon. `program` is "metad" ...; --help and --version exit, as does bad usage (2). `elsewhere`: keys that
    are no options, and what to do instead, for the error."""
    flags = vars(_parser(program, options).parse_args(argv))
    by_key = {option.key: option for option in options}
    given: dict[str, Any] = {}
    for option in options:
        if flags.get(option.key) is not None:
            given[option.key] = _checked(option, flags[option.key], option.flag)
        elif environ.get(option.env):
            given[option.key] = _checked(option, environ[option.env], option.env)
    path = _find_file(flags.get("config"), environ, str(given.get("broker.dataDir") or default_data_dir))
    if path:
        for key, raw in read_file(path, program, by_key, environ, elsewhere).items():
            given.setdefault(key, raw)
    return Config(options, given, path)


def read_file(path: str, program: str, options: Mapping[str, Option], environ: Mapping[str, str],
              elsewhere: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """The checked values of a YAML file by key."""
    try:
        with open(path, encoding="utf-8") as file:
            tree = yaml.load(file, _Loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as e:
        raise BadConfig(f"cannot read the config {path}: {' '.join(str(e).split())}") from None
    found = {}
    for key, raw in _leaves(tree, path, program, options, elsewhere):
        value = _expanded(key, raw, environ, path)
        if value is not None:
            found[key] = _checked(options[key], value, path)
    return found


def _find_file(named: str | None, environ: Mapping[str, str], data_dir: str) -> str:
    named = named or environ.get(CONFIG_ENV)
    if named:
        return os.path.abspath(named)
    path = os.path.join(data_dir, CONFIG_NAME)
    return path if os.path.exists(path) else ""


def _leaves(tree: object, path: str, program: str, options: Mapping[str, Option], elsewhere: Mapping[str, str],
            prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(key, raw value) of every option in the tree; BadConfig for what is none."""
    if tree is None:
        return
    if not isinstance(tree, dict):
        raise BadConfig(f"{path}: {prefix or 'the file'} must be a mapping of names to values")
    for name, raw in tree.items():
        key = f"{prefix}.{name}" if prefix else str(name)
        if key in DAEMONS and key != program:
            continue
        if key in options:
            yield key, raw
        elif any(known.startswith(key + ".") for known in options):
            yield from _leaves(raw, path, program, options, elsewhere, key)
        elif key in elsewhere:
            raise BadConfig(f"{path}: {key} is not a node's to set: {elsewhere[key]}")
        elif key != program or raw is not None:
            raise BadConfig(f"{path}: unknown key {key}{_nearest(key, options)}")


def _nearest(key: str, options: Mapping[str, Option]) -> str:
    close = difflib.get_close_matches(key, options, 1, 0.7)
    return f": did you mean {close[0]}?" if close else ""


def _expanded(key: str, raw: object, environ: Mapping[str, str], path: str) -> object:
    if not isinstance(raw, str):
        return raw

    def value(match: re.Match[str]) -> str:
        found = environ.get(match[1]) or match[2]
        if found is None:
            raise BadConfig(f"{path}: {key} needs the environment variable {match[1]}: set it or write ${{{match[1]}:default}}")
        return found

    expanded = _VARIABLE.sub(value, raw)
    return None if raw and not expanded else expanded


def _checked(option: Option, raw: object, source: str) -> str | int | bool:
    try:
        return option.parse(raw)
    except ValueError as e:
        shown = option.show(raw) if isinstance(raw, bool) else str(raw)
        raise BadConfig(f"{option.key} (from {source}) is {shown!r:.100}: {e}") from None


class _Loader(yaml.SafeLoader):
    """Scalars stay as they are written, but for null: options know their types, and YAML's guesses (off, 010, 1:30) surprise.
    A key written twice is an error, not the last one's win."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag == "tag:yaml.org,2002:null"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = key_node.value
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a name", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key} is there twice", key_node.start_mark)
            seen.add(key)
        return {key.value: self.construct_object(value, deep) for key, value in node.value}


def _parser(program: str, options: Sequence[Option]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        f"gq_{program}", allow_abbrev=False,
        description=f"The {program} daemon of GoQueue. It stays in the foreground; a supervisor keeps it.",
        epilog=f"The first of flag, environment (GOQUEUE_...) and config file counts. Config file: --config, ${CONFIG_ENV}, "
               f"or {CONFIG_NAME} in the data directory.")
    parser.add_argument("--version", action="version", version=f"gq_{program} {__version__}")
    parser.add_argument("--config", metavar="FILE", help="YAML config file", default=argparse.SUPPRESS)
    for option in options:
        shown = option.show(option.default) if option.default != "" else "none"
        parser.add_argument(option.flag, dest=option.key, metavar=option.kind.upper(), default=argparse.SUPPRESS,
                            help=f"{option.help}{_legal(option)} [{shown}] [${option.env}]".replace("%", "%%"))
    return parser


def _legal(option: Option) -> str:
    legal = option.range or ", ".join(option.choices)
    return f" ({legal})" if legal else ""


# -- values ------------------------------------------------------------------------------

def _kebab(key: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"-\1", key).replace(".", "-").lower()


def _with_unit(value: int, units: Sequence[tuple[str, int]], smallest: str) -> str:
    for unit, size in units:
        if value > 0 and value % size == 0:
            return f"{value // size}{unit}"
    return f"{value}{smallest if value > 0 else ''}"


def parse_size(raw: object) -> int:
    """Bytes of 65536, "64KiB", "1 MB"; ValueError."""
    number, unit = _number(raw, "a size such as 65536, 64KiB or 1GiB")
    if unit.lower() not in _SIZES:
        raise ValueError("use a size such as 65536, 64KiB or 1GiB")
    return _whole(number * _SIZES[unit.lower()])


def parse_duration(raw: object) -> int:
    """Milliseconds of 30 (seconds), "500ms", "7d"; ValueError. -1 stays -1: unlimited."""
    number, unit = _number(raw, "a duration such as 500ms, 30s, 5m, 2h or 7d")
    if number == UNLIMITED and not unit:
        return UNLIMITED
    if (unit or "s") not in _TIMES_MS:
        raise ValueError("use a duration such as 500ms, 30s, 5m, 2h or 7d")
    return _whole(number * _TIMES_MS[unit or "s"])


def _number(raw: object, legal: str) -> tuple[float, str]:
    match = _NUMBER_UNIT.fullmatch(str(raw)) if isinstance(raw, str | int | float) and not isinstance(raw, bool) else None
    if not match:
        raise ValueError(f"use {legal}")
    return float(match[1]), match[2]


def _whole(number: float) -> int:
    if abs(number) > 2**53 or number != int(number):
        raise ValueError("use a whole number of the smallest unit")
    return int(number)


def _parse_int(raw: object) -> int:
    if isinstance(raw, bool) or not re.fullmatch(r"\s*[+-]?\d{1,18}\s*", str(raw), re.ASCII):
        raise ValueError("use a whole number")
    return int(str(raw))


def _parse_bool(raw: object) -> bool:
    known = _BOOLS.get(str(raw).strip().lower())
    if known is None:
        raise ValueError("use true or false")
    return known


def _parse_text(raw: object) -> str:
    if isinstance(raw, dict | list) or raw is None or "\0" in str(raw) or "\n" in str(raw):
        raise ValueError("use one line of text")
    return str(raw)


_PARSERS: Final[Mapping[str, Callable[[object], str | int | bool]]] = {
    TEXT: _parse_text, INT: _parse_int, BOOL: _parse_bool, BYTES: parse_size, DURATION: parse_duration}


# -- the shipped file ----------------------------------------------------------------------

def sample(options: Sequence[Option], head: str) -> str:
    """A YAML file that spells out every default with its help, its range and the environment variable that overrides it."""
    lines = [head.rstrip("\n")]
    open_sections: list[str] = []
    for option in options:
        *sections, name = option.key.split(".")
        shared = 0
        while shared < min(len(sections), len(open_sections)) and sections[shared] == open_sections[shared]:
            shared += 1
        for depth in range(shared, len(sections)):
            lines += ([""] if depth == 0 else []) + ["  " * depth + sections[depth] + ":"]
        open_sections = sections
        pad = "  " * len(sections)
        lines += [f"{pad}# {option.help}{_legal(option)}", f"{pad}{name}: ${{{option.env}:{option.show(option.default)}}}"]
    return "\n".join(lines) + "\n"
