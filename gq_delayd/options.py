"""delayd's options are those of section delay, which gq_run.settings declares; and the core's settings made of them."""

from typing import Final

from gq_delayd.settings import Settings
from gq_run.options import Config, Option

OPTIONS: Final[tuple[Option, ...]] = ()


def settings_of(config: Config) -> Settings:
    return Settings(config.number("delay.indexInterval") / 1000, config.number("delay.readyMessages"))
