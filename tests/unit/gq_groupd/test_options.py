"""What is refused with the place where it is set."""

import pytest

from gq_groupd.options import weights_of
from gq_proto.errors import BadConfig


def test_weights() -> None:
    assert weights_of("50/25/15/7/3") == (50, 25, 15, 7, 3) and weights_of("1/1/1/1/1") == (1,) * 5


@pytest.mark.parametrize("text", ["", "50/25/15/7", "50/25/15/7/3/1", "50/25/15/7/0", "a/b/c/d/e", "50/25/15/7/-3", "1/1/1/1/10000",
                                  "1/1/1/1/1\n", "1/1/1/1/1 ", "1/1/1/1/\u0661"])
def test_weights_that_are_none(text: str) -> None:
    with pytest.raises(BadConfig, match=r"priority\.weights"):
        weights_of(text)
