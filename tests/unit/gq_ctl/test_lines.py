import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq_ctl.lines import LongLine, lines


def read(data, bound=100, step=7, **options):
    stream = io.BytesIO(data)
    return [line for some in lines(lambda size: stream.read(step), bound, **options) for line in some]


@pytest.mark.parametrize(("data", "found"), [
    (b"", []),
    (b"a\nb\n", [b"a", b"b"]),
    (b"a\nb", [b"a", b"b"]),
    (b"a\r\nb\r\n", [b"a", b"b"]),
    (b"a\r\nb\r", [b"a", b"b"]),
    (b"\n\n", [b"", b""]),
    (b"\0\n\xff\xfe\n", [b"\0", b"\xff\xfe"]),
    (b"a\rb\n", [b"a\rb"]),
])
def test_lines_end_with_lf_or_crlf_or_nothing(data, found):
    for step in (1, 2, 3, 100):
        assert read(data, step=step) == found


def test_the_cr_stays_when_asked():
    assert read(b"a\r\nb", keep_cr=True) == [b"a\r", b"b"]


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_a_line_above_the_bound_is_named_and_those_before_it_come(step):
    stream = io.BytesIO(b"a\nb\n" + b"x" * 11 + b"\nc\n")
    found = []
    with pytest.raises(LongLine, match="line 3 has more than 10 bytes") as error:
        for some in lines(lambda size: stream.read(step), 10):
            found += some
    assert found == [b"a", b"b"] and error.value.number == 3
    assert read(b"x" * 10 + b"\r\ny", bound=10, step=step) == [b"x" * 10, b"y"]


def test_an_endless_line_is_refused_before_it_is_read_whole():
    reads = []

    def endless(size):
        reads.append(size)
        return b"x" * 5

    with pytest.raises(LongLine):
        list(lines(endless, 20))
    assert len(reads) < 10


@given(st.lists(st.binary().filter(lambda line: b"\n" not in line and not line.endswith(b"\r"))), st.integers(1, 50),
       st.sampled_from([b"\n", b"\r\n"]))
def test_every_line_comes_back(whole, step, end):
    assert read(b"".join(line + end for line in whole), bound=10**6, step=step) == whole
