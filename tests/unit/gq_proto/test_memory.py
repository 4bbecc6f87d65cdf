"""The allocator's switch never fails loudly."""

import os
import platform
import subprocess
import sys


def test_it_is_taken_on_glibc_and_harmless_elsewhere():
    code = "from gq_proto.memory import keep_freed_memory as keep; print(keep(), keep())"
    env = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.split() == ["True" if platform.libc_ver()[0] == "glibc" else "False"] * 2
