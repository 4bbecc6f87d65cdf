"""What the core is told by the options (see gq_run.settings, section delay)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    index_interval_s: float = 1.0        # changes are saved so often; 0: there is no index
    ready_messages: int = 8_192          # one ready record names at most
    due_page: int = 20_000               # messages asked for at once
