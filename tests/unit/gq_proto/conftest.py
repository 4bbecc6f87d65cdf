"""`codec`: the test runs once for each codec. `compiled`: only where one was built."""

import importlib
from types import ModuleType

import pytest

from gq_proto import pure


def _compiled() -> ModuleType:
    return pytest.importorskip("gq_proto._codec", reason="the compiled codec is not built: python setup.py build_ext --inplace",
                               exc_type=ImportError)


@pytest.fixture(params=["pure", "compiled"])
def codec(request: pytest.FixtureRequest) -> ModuleType:
    return pure if request.param == "pure" else _compiled()


@pytest.fixture(scope="session")
def compiled() -> ModuleType:
    return _compiled()


@pytest.fixture
def reload_codec(monkeypatch: pytest.MonkeyPatch):
    """reload_codec(value of GOQUEUE_CODEC) -> the codec module loaded anew under another name."""

    def load(wanted: str | None) -> ModuleType:
        monkeypatch.delenv("GOQUEUE_CODEC", raising=False) if wanted is None else monkeypatch.setenv("GOQUEUE_CODEC", wanted)
        spec = importlib.util.find_spec("gq_proto.codec")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load
