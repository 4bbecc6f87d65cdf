import subprocess
import sys

import pytest

SHOW = """
import os, sys
from gq_ctl import standard
standard.hold()
print([os.open(os.devnull, os.O_RDONLY) > 2] + [os.get_inheritable(fd) for fd in range(3)], file=open(os.environ["TO"], "w"))
{}
"""


def run(tmp_path, closed, body="pass"):
    """What Python says on stderr when it starts with `closed` file descriptors."""
    done = subprocess.run(["/bin/sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, SHOW.format(body)],
                          env={"TO": str(tmp_path / "shown"), "PYTHONPATH": ":".join(sys.path)}, capture_output=True, text=True)
    assert (tmp_path / "shown").read_text() == "[True, True, True, True]\n"
    return done.stderr.strip().rpartition("\n")[2]


@pytest.mark.parametrize(("closed", "body", "said"), [
    (">&-", "os.write(1, b'x')", "OSError: [Errno 9] Bad file descriptor"),
    ("<&-", "os.read(0, 1)", "OSError: [Errno 9] Bad file descriptor"),
    ("<&-", "sys.stdin.read()", "OSError: [Errno 9] Bad file descriptor"),
    ("2>&-", "os.write(2, b'x'); print('x', file=sys.stderr)", ""),
    ("<&- >&- 2>&-", "assert sys.stdin and sys.stdout and sys.stderr", ""),
    ("", "print('x'); sys.stderr.write('as ever')", "as ever"),
])
def test_nothing_else_gets_the_number_of_what_was_closed(tmp_path, closed, body, said):
    assert run(tmp_path, closed, body) == said


@pytest.mark.parametrize("command", ["--version", "completion bash", "publish --help"])
@pytest.mark.parametrize(("to", "why"), [(">&-", "Bad file descriptor"), (">/dev/full", "No space left on device")])
def test_what_cannot_be_printed_is_said_in_one_line(command, to, why):
    done = subprocess.run(["/bin/sh", "-c", f'exec "$0" -m gq_ctl {command} {to}', sys.executable],
                          env={"PYTHONPATH": ":".join(sys.path)}, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("gqctl: ") and done.stderr.endswith(f"{why}\n") and done.stderr.count("\n") == 1
