#!/usr/bin/env python3
"""A producer and a worker with nothing but Python's standard library.

    python3 examples/http/worker.py publish jobs one two three
    python3 examples/http/worker.py work jobs workers 3        take 3 messages, ack what works, nack what does not

GOQUEUE_URL: the gateway (http://127.0.0.1:8080); GOQUEUE_KEY: an API key, if it wants one.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

URL = os.environ.get("GOQUEUE_URL", "http://127.0.0.1:8080") + "/v1"
KEY = os.environ.get("GOQUEUE_KEY", "")


class Refused(Exception):
    """A problem: `code` is stable, `retriable` says whether asking again may help."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__(problem["detail"])
        self.code, self.retriable = problem["code"], problem["retriable"]


def call(method: str, path: str, body: Any = None, **query: Any) -> Any:
    """One request; asked again while the answer says that this may help."""
    url = URL + path + ("?" + urllib.parse.urlencode(query) if query else "")
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {KEY}"} if KEY else {})}
    for wait in (0.1, 0.5, 1, 2, None):
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=60) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            refused = Refused(json.loads(error.read()))
            if not refused.retriable or wait is None:
                raise refused from None
            time.sleep(wait)
    raise AssertionError


def publish(topic: str, *values: str) -> None:
    answer = call("POST", f"/topics/{topic}/batch", {"messages": [{"value": value} for value in values]})
    for value, result in zip(values, answer["results"]):
        print("published", value, result["partition"], result["offset"])


def work(topic: str, group: str, count: str) -> None:
    member = call("POST", f"/groups/{group}/join", {"topics": [topic], "mode": "shared"})["member"]
    left = int(count)
    try:
        while left:
            polled = call("GET", f"/groups/{group}/poll", member=member, max=min(left, 100), wait="30s")
            done = [message["receipt"] for message in polled["messages"] if handle(message)]
            failed = [message["receipt"] for message in polled["messages"] if message["receipt"] not in done]
            if done:
                call("POST", f"/groups/{group}/ack", {"receipts": done})
            if failed:
                call("POST", f"/groups/{group}/nack", {"receipts": failed, "delay": "100ms"})
            left -= len(done)
    except Refused as refused:
        if refused.code != "unknown_member":        # our session ended: a real worker would join again
            raise
    finally:
        call("POST", f"/groups/{group}/leave", {"member": member})


def handle(message: dict[str, Any]) -> bool:
    """The work itself. False: again, later."""
    if message["value"] == "flaky" and message["delivery"] == 1:
        print("failed", message["value"])
        return False
    print("done", message["value"])
    return True


if __name__ == "__main__":
    if sys.argv[1:2] == ["publish"] and len(sys.argv) > 3:
        publish(*sys.argv[2:])
    elif sys.argv[1:2] == ["work"] and len(sys.argv) == 5:
        work(*sys.argv[2:])
    else:
        sys.exit(__doc__)
