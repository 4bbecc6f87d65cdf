"""python -m gq_groupd, gq_groupd."""

from gq_groupd.daemon import GroupDaemon
from gq_groupd.options import OPTIONS
from gq_run import daemon


def main() -> None:
    daemon.main("groupd", OPTIONS, GroupDaemon)


if __name__ == "__main__":
    main()
