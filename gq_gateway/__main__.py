"""`gq_gateway`, `python -m gq_gateway`."""

from gq_gateway.daemon import GatewayDaemon
from gq_gateway.loop import AsyncLoop
from gq_gateway.options import OPTIONS
from gq_run import daemon


def main() -> None:
    daemon.main("gateway", OPTIONS, GatewayDaemon, loop=AsyncLoop)


if __name__ == "__main__":
    main()
