"""The metrics of several daemons as one text: fetched from each, put together family by family.

Prometheus wants all samples of a family in one place, under one HELP and TYPE. Daemons declare the same families
(gq_run.metrics), so the first one's words serve for all.
"""

import asyncio
import re
from collections.abc import Iterable
from typing import Final

from gq_run import paths

TIMEOUT_S: Final = 5.0
BYTES_MAX: Final = 64 * 1024 * 1024
_HEAD: Final = re.compile(rb"# (?:HELP|TYPE) ([A-Za-z0-9_:]+) ")


async def scrape(address: str, key: str = "") -> bytes:
    """GET /metrics of a daemon at host:port, with a key if it wants one; b"" when it does not answer in time: the others' figures
    count all the same."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await _get(*paths.split_address(address), key)
    except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
        return b""


async def _get(host: str, port: int, key: str) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        shown = f"Authorization: Bearer {key}\r\n" if key else ""
        writer.write(f"GET /metrics HTTP/1.0\r\nHost: {host}\r\n{shown}\r\n".encode())
        head, _, body = (await _all(reader)).partition(b"\r\n\r\n")
    finally:
        writer.close()
    return body if head.split(b" ", 2)[1:2] == [b"200"] else b""


async def _all(reader: asyncio.StreamReader) -> bytes:
    parts, size = [], 0
    while part := await reader.read(1 << 16):
        parts.append(part)
        size += len(part)
        if size > BYTES_MAX:
            raise ValueError("too much")
    return b"".join(parts)


def merge(texts: Iterable[bytes]) -> bytes:
    """One exposition of several."""
    heads: dict[bytes, list[bytes]] = {}
    samples: dict[bytes, list[bytes]] = {}
    for text in texts:
        family, fresh = b"", False
        for line in text.splitlines():
            match = _HEAD.match(line)
            if match:
                fresh = match[1] not in heads or (fresh and match[1] == family)
                family = match[1]
                samples.setdefault(family, [])
                if fresh:
                    heads.setdefault(family, []).append(line)
            elif line and not line.startswith(b"#"):
                samples.setdefault(family, []).append(line)
    lines = [line for family, found in samples.items() for line in (*heads.get(family, ()), *found)]
    return b"\n".join(lines) + b"\n" if lines else b""
