"""Options that only the gateway has. Where it listens is in gq_run/settings.py, in the sections http and metrics."""

from typing import Final

from gq_run.options import Option

OPTIONS: Final[tuple[Option, ...]] = ()
