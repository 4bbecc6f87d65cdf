"""The gateway: HTTP (and gRPC) for apps in any language; health, metrics and documentation for people.

Owns connections of callers, what they may send and for how long, and the translation between JSON and the protocol. Never owns
state: it is a client like any other (one gq_client.AsyncClient), any number run side by side, and a restart loses nothing but
the connections. What an HTTP caller is handed are hold leases, named by receipts that any gateway takes.

Invariants: a caller sees a documented status and a problem with a stable code, never a stack trace; what was leased for a caller
who went away before the answer was sent is given back at once; nothing here grows with what callers send or leave unread;
neither keys nor payloads are ever logged.

    routes    the one table: paths, handlers, bodies, errors       openapi   the document and the page made of it
    app       falcon on the routes        codec, problems          JSON and messages, errors as RFC 9457
    http      listener (uvicorn) and its guard                     gateway   what all handlers share: client, producers, drain
    door      keys of callers             tls                      certificates of listeners
    polls     what a long poll leases, fetches, gives back         (HTTP's and gRPC's)
    loop      gq_run's loop on asyncio                             daemon    the shell
"""
