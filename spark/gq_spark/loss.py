"""What a reader does when something it should have read is not there: an error, or with failOnDataLoss=false a warning."""

import logging

_log = logging.getLogger("gq_spark")


class DataLoss(Exception):
    """Messages that were asked for cannot be read: the text names file and position, or partition and offsets."""


def lost(fatal: bool, what: str) -> None:
    """DataLoss if `fatal`, else a warning, and the caller goes on with the rest."""
    if fatal:
        raise DataLoss(f"{what}. To read the rest all the same: option failOnDataLoss=false")
    _log.warning("%s; going on with the rest", what)
