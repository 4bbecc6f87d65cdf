"""metad's log: what was acknowledged is there, however the file ends; damage is never cut."""

import contextlib
import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from gq_metad.log import LOG_MAGIC, MetaLog, frame, read_frame
from gq_proto.errors import Corrupt, DiskFull
from gq_run.disk import Disk, File

PAYLOADS = [b"one", b"", b"three" * 50, b"\xff\x00four"]


def opened(folder: Path) -> tuple[MetaLog, list[bytes], int]:
    log = MetaLog(Disk(), str(folder))
    found = log.open()
    for _ in found.frames:
        log.took(1)
    return log, [f.payload for f in found.frames], found.cut


def filled(folder: Path, payloads: list[bytes] = PAYLOADS) -> None:
    log, _, _ = opened(folder)
    for payload in payloads:
        log.append(payload, 1)
    log.close()


def ends(payloads: list[bytes]) -> list[int]:
    """Where each frame ends, the magic first."""
    position, found = len(LOG_MAGIC), [len(LOG_MAGIC)]
    for payload in payloads:
        position += 24 + len(payload)
        found.append(position)
    return found


def test_a_frame_comes_back_whole_or_not_at_all() -> None:
    data = frame(3, 7, b"payload")
    found = read_frame(b"xx" + data + b"yy", 2)
    assert found is not None
    assert (found.term, found.index, found.payload, found.end) == (3, 7, b"payload", 2 + len(data))
    for cut in range(len(data)):
        assert read_frame(data[:cut], 0) is None
    for bit in range(8 * len(data)):
        broken = bytearray(data)
        broken[bit // 8] ^= 1 << bit % 8
        assert read_frame(bytes(broken), 0) is None
    assert read_frame(bytes(1000), 0) is None


def test_what_was_appended_is_there(tmp_path: Path) -> None:
    filled(tmp_path)
    log, payloads, cut = opened(tmp_path)
    assert (payloads, cut, log.index) == (PAYLOADS, 0, 4)
    log.append(b"five", 1)
    log.close()
    assert opened(tmp_path)[1] == [*PAYLOADS, b"five"]


def test_cut_anywhere_the_longest_whole_part_stays(tmp_path: Path) -> None:
    filled(tmp_path)
    path, bounds = tmp_path / "log", ends(PAYLOADS)
    data = path.read_bytes()
    assert len(data) == bounds[-1]
    for size in range(len(data)):
        path.write_bytes(data[:size])
        log, payloads, cut = opened(tmp_path)
        whole = sum(end <= size for end in bounds[1:])
        assert payloads == PAYLOADS[:whole]
        assert cut == (size - bounds[whole] if size >= len(LOG_MAGIC) else 0)
        log.append(b"more", 1)                       # and it goes on from there
        log.close()
        log, payloads, cut = opened(tmp_path)
        assert (payloads, cut) == ([*PAYLOADS[:whole], b"more"], 0)
        log.close()


@pytest.mark.parametrize("tail", [b"\x00" * 4096, b"\xff" * 100, frame(0, 5, b"x" * 64)[:-1], b"GQMETA"])
def test_a_torn_tail_of_any_kind_is_cut(tmp_path: Path, tail: bytes) -> None:
    filled(tmp_path)
    with (tmp_path / "log").open("ab") as file:
        file.write(tail)
    log, payloads, cut = opened(tmp_path)
    assert (payloads, cut) == (PAYLOADS, len(tail))
    assert (tmp_path / "log").stat().st_size == ends(PAYLOADS)[-1]
    log.close()


def test_damage_with_good_entries_behind_it_is_an_error_and_stays(tmp_path: Path) -> None:
    filled(tmp_path)
    path, bounds = tmp_path / "log", ends(PAYLOADS)
    for position in range(bounds[0], bounds[3]):
        data = bytearray(path.read_bytes())
        data[position] ^= 0x10
        (tmp_path / "damaged").mkdir(exist_ok=True)
        damaged = tmp_path / "damaged" / "log"
        damaged.write_bytes(data)
        at = max(end for end in bounds if end <= position)
        with pytest.raises(Corrupt, match=f"log is damaged at {at}, good entries follow"):
            opened(tmp_path / "damaged")
        assert damaged.read_bytes() == data


def test_another_file_or_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"GQMETA\x00\x02" + frame(0, 1, b"x"))
    with pytest.raises(Corrupt, match="no metadata log of this version"):
        opened(tmp_path)


def test_a_snapshot_replaces_the_log(tmp_path: Path) -> None:
    filled(tmp_path)
    log, _, _ = opened(tmp_path)
    log.snapshot(b"all of it")
    assert log.size == len(LOG_MAGIC)
    log.append(b"after", 1)
    log.close()
    log = MetaLog(Disk(), str(tmp_path))
    found = log.open()
    assert (found.snapshot, found.snapshot_index, [f.payload for f in found.frames]) == (b"all of it", 4, [b"after"])
    assert [f.index for f in found.frames] == [5]
    log.close()


@pytest.mark.parametrize("fails", ["write_atomic", "sync_dir", "open"])
@pytest.mark.parametrize("at", [1, 2])
def test_what_is_appended_after_a_snapshot_that_failed_is_there(tmp_path: Path, fails: str, at: int) -> None:
    """Also when the new log has taken the old one's place already."""
    filled(tmp_path)
    disk = Failing()
    log = MetaLog(disk, str(tmp_path))
    for _ in log.open().frames:
        log.took(1)
    disk.left[fails] = at
    with contextlib.suppress(OSError):
        log.snapshot(b"all of it")
    disk.left.clear()
    log.append(b"after", 1)
    log.close()
    log = MetaLog(Disk(), str(tmp_path))
    found = log.open()
    assert [f.payload for f in found.frames] == ([b"after"] if found.snapshot else [*PAYLOADS, b"after"])
    log.close()


class Failing(Disk):
    """`left`: how many calls from now each fails, once."""

    def __init__(self) -> None:
        self.left: dict[str, int] = {}

    def _check(self, name: str) -> None:
        self.left[name] = self.left.get(name, 0) - 1
        if self.left[name] == 0:
            raise OSError(errno.EIO, name)

    def open(self, path: str, *, create: bool = False) -> File:
        self._check("open")
        return super().open(path, create=create)

    def write_atomic(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._check("write_atomic")
        super().write_atomic(path, data, durable=durable)

    def sync_dir(self, path: str) -> None:
        self._check("sync_dir")
        super().sync_dir(path)


def test_a_crash_between_snapshot_and_log_counts_nothing_twice(tmp_path: Path) -> None:
    filled(tmp_path)
    old = (tmp_path / "log").read_bytes()
    log, _, _ = opened(tmp_path)
    log.snapshot(b"all")
    log.close()
    (tmp_path / "log").write_bytes(old)
    log = MetaLog(Disk(), str(tmp_path))
    found = log.open()
    assert (found.snapshot, found.frames, log.index) == (b"all", [], 4)
    log.append(b"five", 1)
    log.close()
    log = MetaLog(Disk(), str(tmp_path))
    assert [f.payload for f in log.open().frames] == [b"five"]
    log.close()


def test_a_damaged_snapshot_is_an_error(tmp_path: Path) -> None:
    filled(tmp_path)
    log, _, _ = opened(tmp_path)
    log.snapshot(b"all")
    log.close()
    path = tmp_path / "snapshot"
    data = path.read_bytes()
    for position in range(len(data)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1:])
        with pytest.raises(Corrupt, match="snapshot is damaged"):
            opened(tmp_path)
    for tail in (data[:-1], data + b"x", b""):
        path.write_bytes(tail)
        with pytest.raises(Corrupt, match="snapshot is damaged"):
            opened(tmp_path)


def test_a_log_that_misses_entries_after_the_snapshot_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(LOG_MAGIC + frame(0, 3, b"x"))
    with pytest.raises(Corrupt, match="begins at entry 3, but the snapshot ends at 0"):
        opened(tmp_path)


@pytest.mark.parametrize("left", [None, b"", LOG_MAGIC[:-1]])
def test_a_log_that_is_gone_from_beside_its_snapshot_is_an_error(tmp_path: Path, left: bytes | None) -> None:
    filled(tmp_path)
    log, _, _ = opened(tmp_path)
    log.snapshot(b"all")
    log.append(b"after", 1)
    log.close()
    path = tmp_path / "log"
    if left is None:
        path.unlink()
    else:
        path.write_bytes(left)
    for _ in range(2):                               # and it is not made anew on the way
        with pytest.raises(Corrupt, match="log is gone or empty, but there is a snapshot"):
            opened(tmp_path)


class FailingFile(File):
    """Fails its appends halfway, or its syncs."""

    fails: Callable[[str], int] = staticmethod(lambda what: 0)

    def append(self, buffers: object) -> None:
        error = self.fails("append")
        if error:
            super().append([b"half of it"])
            self.size -= 10
            raise OSError(error, "no")
        super().append(buffers)             # type: ignore[arg-type]

    def sync(self) -> None:
        error = self.fails("sync")
        if error:
            raise OSError(error, "no")
        super().sync()


class FailingDisk(Disk):
    def open(self, path: str, *, create: bool = False) -> File:
        real = super().open(path, create=create)
        file = FailingFile(path, real._fd)
        real._fd = -1
        return file


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], MetaLog]:
    log = MetaLog(FailingDisk(), str(tmp_path))
    log.open()
    log.append(b"one", 1)

    def fail(what: str, error: int) -> MetaLog:
        monkeypatch.setattr(FailingFile, "fails", staticmethod(lambda asked: error if asked == what else 0))
        return log

    return fail


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_leaves_the_log_as_it_was(failing: Callable[[str, int], MetaLog], tmp_path: Path, error: int) -> None:
    log = failing("append", error)
    with pytest.raises(DiskFull) as refused:
        log.append(b"two", 1)
    assert refused.value.retriable and log.index == 1
    assert (tmp_path / "log").stat().st_size == ends([b"one"])[-1]
    failing("nothing", 0).append(b"three", 1)        # space was freed: it goes on
    log.close()
    assert opened(tmp_path)[1] == [b"one", b"three"]


@pytest.mark.parametrize(("what", "error"), [("append", errno.EIO), ("sync", errno.EIO), ("sync", errno.ENOSPC)])
def test_a_disk_that_breaks_is_the_end(failing: Callable[[str, int], MetaLog], what: str, error: int) -> None:
    log = failing(what, error)
    with pytest.raises(OSError, match="no"):
        log.append(b"two", 1)
    log.close()
