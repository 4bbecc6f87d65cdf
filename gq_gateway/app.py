"""The ASGI application: falcon on the table of routes."""

from typing import Any

import falcon.asgi

from gq_gateway.gateway import Gateway


class Health:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def on_get(self, req: Any, resp: Any) -> None:
        ready = self._gateway.is_ready()
        resp.status = 200 if ready else 503
        resp.media = {"live": True, "ready": ready}


def make_app(gateway: Gateway) -> Any:
    app = falcon.asgi.App()
    for prefix in ("", "/v1"):
        app.add_route(prefix + "/admin/health", Health(gateway))
    return app
