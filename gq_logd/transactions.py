"""Transactions in one partition: which are open, and what was aborted.

Owns the exact offset ranges each open transaction wrote here, and those of the aborted ones. The last stable offset is the first
offset of the oldest open transaction: committed readers stop there. What is aborted stays hidden for ever and is kept in
`.txnindex` of the segment that holds the abort marker; the open ones are rebuilt by a scan from the last stable offset.

Called when batches and markers are written, or found by recovery; never before.
"""

from gq_proto import ranges as rng


class Transactions:
    __slots__ = ("_open", "aborted")

    def __init__(self) -> None:
        self._open: dict[int, list[int]] = {}      # producer id -> ranges
        self.aborted: list[int] = []

    def wrote(self, producer_id: int, offset: int, count: int) -> None:
        """A transactional batch of this producer lies here."""
        written = self._open.setdefault(producer_id, [])
        if written and written[-2] + written[-1] == offset:
            written[-1] += count
        else:
            written += (offset, count)

    def open_of(self, producer_id: int) -> list[int]:
        return list(self._open.get(producer_id, ()))

    def finish(self, producer_id: int, commit: bool) -> list[int]:
        """The end of a producer's open transaction is in the log; returns what is aborted by it and was not known to be."""
        written = self._open.pop(producer_id, [])
        if commit or not written:
            return []
        fresh = rng.subtract(written, self.aborted)
        self.aborted = rng.union(self.aborted, fresh)
        return fresh

    def last_stable(self, high_watermark: int) -> int:
        """Everything below is decided."""
        if not self._open:
            return high_watermark
        return min(high_watermark, min(written[0] for written in self._open.values()))

    def aborted_within(self, low: int, high: int) -> list[int]:
        return rng.clip(self.aborted, low, high) if self.aborted else []

    def trim(self, log_start: int) -> None:
        """Aborted ranges below the log start are gone."""
        if self.aborted and self.aborted[0] < log_start:
            self.aborted = rng.clip(self.aborted, log_start, 2**63)
