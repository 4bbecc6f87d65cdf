"""The Spark extra's tests run where it is installed; none of them needs Java."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("pyspark") and find_spec("pyarrow") else ["*"]
