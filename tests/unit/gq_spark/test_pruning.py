"""What filters leave: never less than Spark would keep."""

from datetime import UTC, date, datetime

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from gq_spark.pruning import EVERY, Window, window_of

WORDS = {EqualTo: lambda a, b: a == b, EqualNullSafe: lambda a, b: a == b, GreaterThan: lambda a, b: a > b,
         GreaterThanOrEqual: lambda a, b: a >= b, LessThan: lambda a, b: a < b, LessThanOrEqual: lambda a, b: a <= b}
numbers = st.integers(0, 12)
compared = st.builds(lambda kind, column, value: kind((column,), value), st.sampled_from(list(WORDS)),
                     st.sampled_from(["offset", "partition", "priority"]), numbers)
listed = st.builds(lambda column, values: In((column,), tuple(values)), st.sampled_from(["offset", "partition"]),
                   st.lists(numbers, min_size=1, max_size=3))
filters = st.lists(compared | listed | compared.map(Not), max_size=4)


def keeps(given_filter, row):
    if isinstance(given_filter, Not):
        return not keeps(given_filter.child, row)
    value = row[given_filter.attribute[0]]
    return value in given_filter.value if isinstance(given_filter, In) else WORDS[type(given_filter)](value, given_filter.value)


@given(filters, numbers, numbers)
def test_a_row_that_spark_keeps_is_read(given_filters, offset, partition):
    window = window_of(given_filters)
    if all(keeps(one, {"offset": offset, "partition": partition, "priority": 2}) for one in given_filters):
        assert window.low <= offset < window.high and window.holds("t", partition)


def test_windows():
    moment = datetime(2027, 1, 15, 8, tzinfo=UTC)
    assert window_of([]) == Window()
    found = window_of([GreaterThan(("offset",), 5), LessThanOrEqual(("offset",), 9), EqualTo(("timestamp",), moment)])
    assert (found.low, found.high, found.oldest, found.newest) == (6, 10, 1_800_000_000_000_000, 1_800_000_000_000_001)
    found = window_of([In(("topic",), ("a", "b")), StringStartsWith(("topic",), "a"), EqualTo(("partition",), 3)])
    assert found.holds("a", 3) and not found.holds("b", 3) and not found.holds("a", 2)


def test_what_is_not_understood_leaves_all():
    naive = datetime(2027, 1, 15, 8)
    given_filters = [IsNotNull(("offset",)), StringContains(("topic",), "x"), EqualTo(("value",), b"x"),
                     EqualTo(("headers", "key"), 1), GreaterThan(("timestamp",), naive),
                     GreaterThan(("timestamp",), date(2027, 1, 1)), EqualTo(("offset",), None), In(("offset",), (1, None)),
                     GreaterThan(("topic",), 5), Not(EqualTo(("offset",), 1))]
    found = window_of(given_filters)
    assert (found.low, found.high, found.oldest, found.newest) == (0, EVERY, 0, EVERY) and found.holds("t", 0)
