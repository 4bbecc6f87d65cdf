"""A core under a clock of the test's own, spoken to as a shell would: `meta.ask(body)` is its answer or the error raised."""

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest

from gq_metad import entries
from gq_metad.core import Core
from gq_metad.effects import Append, Effect, Fail, Reply
from gq_metad.state import State
from gq_metad.topics import Defaults
from gq_proto import messages
from gq_proto.access import Access

KINDS = {request: kind for kind, (request, _) in messages.BODIES.items() if request is not messages.Empty}


@dataclass(eq=False)
class Asked:
    """A request and what came of it."""

    body: Any
    deadline: float
    peer: bytes = b"p"
    kind: int = 0
    access: Access | None = None
    answer: Any = None
    error: Any = None

    @property
    def done(self) -> bool:
        return self.answer is not None or self.error is not None


@dataclass
class Meta:
    defaults: Defaults = field(default_factory=Defaults)
    now: float = 1000.0
    log: list[entries.AnyEntry] = field(default_factory=list)

    def __post_init__(self) -> None:
        ids = itertools.count(1)
        self.core = Core(self.defaults, lambda bits: next(ids))
        self.run(self.core.bootstrap(self.now, 5))

    @property
    def state(self) -> State:
        return self.core.state

    def run(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Append(entry):
                    self.log.append(entry)
                case Reply(call, body):
                    assert isinstance(call, Asked) and not call.done
                    call.answer = body
                case Fail(call, error):
                    assert isinstance(call, Asked) and not call.done
                    call.error = error

    def send(self, body: Any, *, patience: float = 30, peer: bytes = b"p", kind: int | None = None) -> Asked:
        asked = Asked(body, self.now + patience, peer, KINDS[type(body)] if kind is None else kind)
        self.run(self.core.step(self.now, 7_000_000, asked))
        return asked

    def ask(self, body: Any) -> Any:
        """The answer, given at once."""
        asked = self.send(body)
        if asked.error:
            raise asked.error
        assert asked.answer is not None, "no answer yet"
        return asked.answer

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.run(self.core.due(self.now))

    def register(self, node: str = "n1", daemon: str = "logd", peer: bytes = b"p") -> Any:
        return self.send(messages.Register(node, daemon, [f"ipc:///{node}/{daemon}"]), peer=peer).answer

    def apply(self, node: str = "n1") -> Asked:
        """The node's logd says that it has applied all there is, and waits for more."""
        return self.send(messages.Metadata(self.state.version, 10_000, applied_by=node), peer=node.encode())

    def topic(self, name: str) -> messages.TopicMeta:
        found = self.state.topic(name)
        assert found is not None
        return found

    def make(self, name: str, **fields: Any) -> messages.TopicMeta:
        asked = self.send(messages.CreateTopic(name, **fields))
        if asked.error:
            raise asked.error
        self.apply()
        assert asked.answer.created
        return self.topic(name)


@pytest.fixture
def meta() -> Meta:
    """Bootstrapped; no daemon yet."""
    return Meta()


@pytest.fixture
def led(meta: Meta) -> Meta:
    """With a logd that has applied everything."""
    meta.register()
    meta.apply()
    return meta
