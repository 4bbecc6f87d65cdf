"""`gq_metad`, `python -m gq_metad`."""

from gq_metad.daemon import MetaDaemon
from gq_metad.options import OPTIONS
from gq_run import daemon


def main() -> None:
    daemon.main("metad", OPTIONS, MetaDaemon)


if __name__ == "__main__":
    main()
