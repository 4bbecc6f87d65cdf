"""click parameter types for what `units` spells, and the arguments that several commands share."""

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from gq_ctl import units

if TYPE_CHECKING:
    Type = click.ParamType[Any]
else:
    Type = click.ParamType      # generic only since click 8.3


class Spelled(Type):
    """Turns text with a function that raises ValueError; what is no text passes as it is (defaults)."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as e:
            self.fail(str(e), param, ctx)


def _now_us() -> int:
    return time.time_ns() // 1000


DURATION = Spelled("duration", units.duration_ms)
DELAY = Spelled("duration", units.delay_ms)
SIZE = Spelled("size", units.size_bytes)
DURATION_OR_UNLIMITED = Spelled("duration", units.unlimited(units.duration_ms))
SIZE_OR_UNLIMITED = Spelled("size", units.unlimited(units.size_bytes))
DELIVER_AT = Spelled("time", lambda text: units.deliver_at_us(text, _now_us()))
POSITION = Spelled("position", lambda text: units.position(text, _now_us()))
PRIORITY = Spelled("priority", units.priority)


def header(text: str) -> tuple[str, bytes]:
    """'k=v' -> ('k', b'v'). Bytes of the command line that are no UTF-8 stay as they are."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"{text!r} is not a header: write name=value")
    if name.startswith("gq-"):
        raise ValueError(f"{name!r} begins with gq-: those names are the system's")
    return name, raw(value)


def raw(text: str) -> bytes:
    """The bytes the shell passed (Python decodes arguments with the locale's encoding and surrogateescape)."""
    return os.fsencode(text)


HEADER = Spelled("name=value", header)
