"""Jobs over a data directory's log files. Each is a script for spark-submit, and what `gqctl spark JOB` runs; `--help` tells all.

They read segment files where they lie, whether a node runs on them or not; `replay` alone talks to daemons. Rows go to stdout as
gqctl's do; errors are its one line and its exit codes. conf/ is what gqctl tells Spark: quiet, and no web page.
"""
