"""Readiness for systemd, by its datagram protocol (sd_notify): READY=1, STOPPING=1, STATUS=..., WATCHDOG=1.

Owns nothing; without $NOTIFY_SOCKET (not under systemd) every call does nothing. A service manager that does not listen is no
reason to fail. See systemd's sd_notify(3); a name that begins with @ is an abstract socket.
"""

import os
import socket


def notify(*assignments: str) -> bool:
    """Send e.g. notify("READY=1", "STATUS=serving"); True when a service manager took it."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            out.setblocking(False)
            out.sendto("\n".join(assignments).encode(), address)
    except OSError:
        return False
    return True


def watchdog_s() -> float:
    """How often the service manager wants WATCHDOG=1, halved; 0 when it does not."""
    pid = os.environ.get("WATCHDOG_PID")
    usec = os.environ.get("WATCHDOG_USEC", "")
    if not usec.isascii() or not usec.isdigit() or (pid and pid != str(os.getpid())):
        return 0.0
    return int(usec) / 2e6
