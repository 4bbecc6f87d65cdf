"""python -m gq_delayd, gq_delayd."""

from gq_delayd.daemon import DelayDaemon
from gq_delayd.options import OPTIONS
from gq_run import daemon


def main() -> None:
    daemon.main("delayd", OPTIONS, DelayDaemon)


if __name__ == "__main__":
    main()
