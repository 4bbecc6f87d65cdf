"""What everyone agrees on: how records, segments and messages look, and what names, limits and errors there are.

Owns the formats: `record` and `codec` (build, stamp, scan, gather, decode; compiled with a pure twin), `headers`, `control`,
`segment`, `runs`, `ranges`, `files`, `messages`, `errors`, `limits`, `names`; the texts protocol.txt and segment.txt beside.
Never opens a socket, reads a clock or draws a random number; only `codec.gather` touches a file descriptor.
Invariant: bytes that decode are encoded the same way again, bytes that do not raise a typed error, and codes, kinds and field
numbers are never given another meaning.
"""

__version__ = "0.1.0"
