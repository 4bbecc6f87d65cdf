"""The committed code is what the proto says; `pytest --rewrite` writes it anew."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROTO = "gq_gateway/goqueue.proto"
FILES = ("goqueue_pb2.py", "goqueue_pb2.pyi", "goqueue_pb2_grpc.py")
# Which tools made it: another version that says the same otherwise is as good.
LINES = re.compile(r"# Protobuf Python Version: [^\n]*|ValidateProtobufRuntimeVersion\([^)]*\)|GRPC_GENERATED_VERSION = [^\n]*")


def generate(out: Path) -> None:
    from grpc_tools import protoc
    options = [f"-I{ROOT}", f"--python_out={out}", f"--pyi_out={out}", f"--grpc_python_out={out}", str(ROOT / PROTO)]
    assert protoc.main(["protoc", *options]) == 0


def test_the_generated_code_is_that_of_the_proto(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    pytest.importorskip("grpc_tools", reason="a dev dependency")
    if request.config.getoption("--rewrite"):
        generate(ROOT)
    generate(tmp_path)
    for name in FILES:
        made, kept = (tmp_path / "gq_gateway" / name).read_text(), (ROOT / "gq_gateway" / name).read_text()
        assert LINES.sub("", made) == LINES.sub("", kept), f"{name} is old: run pytest --rewrite {Path(__file__).name}"
