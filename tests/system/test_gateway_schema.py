"""Schemathesis over the OpenAPI document against a real node: no server error, no answer that the document does not know.

What it may not know: that a body of the right shape can still be refused (a batch of ours is even answered item by item), and
that a poll waits. `SCHEMA_EXAMPLES` an operation (8), of `SCHEMA_PHASES` (fuzzing;
for more of it coverage,fuzzing,stateful).
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.web import Web

SCHEMATHESIS = shutil.which("st", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
          "response_schema_conformance", "unsupported_method", "missing_required_header")


@pytest.mark.skipif(SCHEMATHESIS is None, reason="no schemathesis here")
def test_every_answer_is_documented(tmp_path: Path) -> None:
    assert SCHEMATHESIS is not None
    web = Web(tmp_path / "web")
    try:
        web.start()
        web.publish(web.topic(2), "a", "b")
        argv = [SCHEMATHESIS, "run", f"http://127.0.0.1:{web.port}/openapi.json", "--url", f"http://127.0.0.1:{web.port}/v1",
                "--phases", os.environ.get("SCHEMA_PHASES", "fuzzing"), "--checks", ",".join(CHECKS),
                "--max-examples", os.environ.get("SCHEMA_EXAMPLES", "8"), "--exclude-operation-id", "getGroupsGroupPoll",
                "--request-timeout", "20", "--no-color"]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout[-8000:]
        assert '"level":"error"' not in web.node.log("gateway")
    finally:
        web.stop()
