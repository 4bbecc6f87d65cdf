"""gRPC: the service goqueue.v1.GoQueue of gq_gateway/goqueue.proto, with reflection and health, on grpc.aio.

Owns the gRPC listener and what it takes to speak proto; what is asked is asked of the gateway's client, on its loop. Never owns
state that a restart would lose: a Subscribe is a member of its group for as long as the call lasts, everything else names what it
is about (members by id, messages by receipt), so any gateway can answer it.

Invariants: a call ends with a documented status and its two trailers, never with a stack trace; nothing grows with what a caller
sends or leaves unread; when a caller goes away, what was leased for it and not sent is given back at once.

    server       the listener                     guard       around every call: keys, errors
    service      the table of methods             status      errors as gRPC says them
    topics       CreateTopic DeleteTopic ...      convert     proto and the client's terms, both ways
    publish      Publish, PublishStream           subscribe   Subscribe
    settle       Ack and its kin, Settle          leases      what Subscribe handed out, to be settled here
    groups       Join Poll Leave Heartbeat Commit
"""

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")         # read when grpc is imported
