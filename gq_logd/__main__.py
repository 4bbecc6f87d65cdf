"""`python -m gq_logd`."""

from gq_logd.daemon import LogDaemon
from gq_logd.options import OPTIONS
from gq_run import daemon


def main() -> None:
    daemon.main("logd", OPTIONS, LogDaemon)


if __name__ == "__main__":
    main()
