"""One message, one run of a command: `consume --exec`.

The message's value is the command's stdin; what else is to know stands in its environment:

    GOQUEUE_TOPIC GOQUEUE_PARTITION GOQUEUE_OFFSET GOQUEUE_TIMESTAMP (Unix microseconds) GOQUEUE_PRIORITY GOQUEUE_GROUP
    GOQUEUE_DELIVERY (1 = first) GOQUEUE_RECEIPT
    GOQUEUE_KEY (unset for none)  GOQUEUE_HEADERS (JSON)

The command line goes to /bin/sh. Its stdout and stderr are gqctl's. A command that does not read its stdin is fine. When gqctl is
interrupted the command gets SIGTERM, and five seconds.
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any, Final

from gq_ctl.message import headers_json
from gq_ctl.output import json_bytes

GRACE_S: Final = 5.0
SHELL: Final = "/bin/sh"
BUILTINS: Final = frozenset((":", ".", "{", "(", "!", "[", "cat", "cd", "echo", "exec", "exit", "export", "eval", "false", "for",
                             "if", "printf", "read", "set", "test", "trap", "true", "until", "wait", "while", "case", "command"))


def missing(command: str) -> str:
    """The program that a command line begins with if it is plainly not there, else "". Shell words pass."""
    try:
        first = shlex.split(command)[0]
    except (ValueError, IndexError):
        return "" if command.strip() else "a command"
    if first in BUILTINS or "=" in first or not first.replace("/", "").replace(".", "").replace("-", "").replace("_", "").isalnum():
        return ""
    return "" if shutil.which(first) else first


def environment(message: Any, group: str, receipt: str, node: Mapping[str, str]) -> dict[bytes, bytes]:
    """What the command is told. A key with a NUL can't be in an environment and is left out. `node`: the variables that make a
    gqctl in the command find the same node."""
    found: dict[str, str | bytes] = {
        "TOPIC": message.topic, "PARTITION": str(message.partition), "OFFSET": str(message.offset), "GROUP": group,
        "TIMESTAMP": str(message.timestamp), "PRIORITY": str(message.priority), "DELIVERY": str(message.delivery),
        "RECEIPT": receipt, "HEADERS": json_bytes(headers_json(message.headers))}
    if message.key is not None and b"\0" not in message.key:
        found["KEY"] = message.key
    inherited = {name: value for name, value in os.environb.items() if name != b"GOQUEUE_KEY"}
    told = {b"GOQUEUE_" + name.encode(): os.fsencode(value) for name, value in found.items()}
    return inherited | {os.fsencode(name): os.fsencode(value) for name, value in node.items()} | told


def run(command: str, message: Any, env: Mapping[bytes, bytes]) -> int:
    """The exit code; negative for a signal."""
    with subprocess.Popen([SHELL, "-c", command], stdin=subprocess.PIPE, env=env) as process:
        try:
            process.communicate(message.value or b"")
        except BaseException:
            process.terminate()
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
            raise
    return process.returncode
