"""Certificate and key of a listener, and whose certificates callers must show.

The files are PEM: the certificate with its chain, the key without a passphrase, and for mutual TLS the authorities whose
certificates are taken. What cannot be read, is no PEM, or does not fit together is one error that names option and file: why the
gateway does not start. Files that change later are taken up by the connections that come then; while what is in them will not do
(one of a pair was written, the other not yet), the last good ones serve on. Connections that are open stay as they are.
Never logs what is in them.
"""

import logging
import os
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from gq_proto.errors import BadConfig
from gq_run import logs
from gq_run.options import Config

LOOK_S: Final = 1.0         # the files are looked at for a new connection so often at most
FILES: Final = ("certFile", "keyFile", "clientCaFile")


@dataclass(frozen=True)
class Tls:
    """`context` for HTTP; the files' bytes for gRPC, which has a TLS of its own. `client_ca` None: callers show none."""

    context: ssl.SSLContext = field(compare=False)
    certificate: bytes
    key: bytes
    client_ca: bytes | None


def load(config: Config, section: str) -> Tls | None:
    """Of the listener "http" or "grpc"; None when it speaks plainly. BadConfig."""
    names = {what: f"{section}.tls.{what}" for what in FILES}
    paths = {what: config.text(key) for what, key in names.items()}
    if not any(paths.values()):
        return None
    for what in ("certFile", "keyFile"):
        if not paths[what]:
            raise BadConfig(f"{names[what]} is missing: certificate and key go together, set both or leave TLS off")
    certificate, key = _read(names["certFile"], paths["certFile"]), _read(names["keyFile"], paths["keyFile"])
    client_ca = _read(names["clientCaFile"], paths["clientCaFile"]) if paths["clientCaFile"] else None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    _check_certificates(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), names["certFile"], paths["certFile"])
    _load_pair(context, names["keyFile"], paths["certFile"], paths["keyFile"])
    if client_ca is not None:
        _check_certificates(context, names["clientCaFile"], paths["clientCaFile"])
        context.verify_mode = ssl.CERT_REQUIRED
    return Tls(context, certificate, key, client_ca)


class Renewed:
    """The files of a listener as they are now. For any thread."""

    def __init__(self, config: Config, section: str, first: Tls, log: logging.Logger,
                 now: Callable[[], float] = time.monotonic) -> None:
        self._config, self._section, self._log, self._now = config, section, log, now
        self._tls = first
        self._stamps = self._look()
        self._look_at = now() + LOOK_S
        self._guard = threading.Lock()

    def current(self) -> Tls:
        """The last that would do."""
        with self._guard:
            if self._now() >= self._look_at:
                self._look_at = self._now() + LOOK_S
                self._renew()
            return self._tls

    def context(self) -> ssl.SSLContext:
        """For a listener: each connection gets what is current when it comes."""
        return _Context(self)

    def _renew(self) -> None:
        stamps = self._look()
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            found = load(self._config, self._section)
        except BadConfig as error:
            self._log.error("the files of TLS changed and will not do, the last ones serve on",
                            extra=logs.fields(listener=self._section, reason=error.message))
            return
        if found and found != self._tls:
            self._tls = found
            self._log.info("the files of TLS changed, they are taken up", extra=logs.fields(listener=self._section))

    def _look(self) -> list[tuple[int, ...]]:
        return [_stamp(self._config.text(f"{self._section}.tls.{what}")) for what in FILES]


def _stamp(path: str) -> tuple[int, ...]:
    """Differs when the file does; () when there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


class _Context(ssl.SSLContext):
    """Asyncio and uvloop want one context for all connections of a listener: this one hands each to the current one."""

    def __new__(cls, renewed: Renewed) -> "_Context":
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, renewed: Renewed) -> None:
        self._renewed = renewed

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        return self._renewed.current().context.wrap_bio(*args, **kwargs)


def renewed(config: Config, section: str, log: logging.Logger) -> Renewed | None:
    """Of the listener "http" or "grpc"; None when it speaks plainly. BadConfig."""
    first = load(config, section)
    return Renewed(config, section, first, log) if first else None


def _read(key: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError) as e:
        raise BadConfig(f"{key}: cannot read {path}: {getattr(e, 'strerror', None) or e}") from None


def _check_certificates(context: ssl.SSLContext, key: str, path: str) -> None:
    """Take them as authorities."""
    try:
        context.load_verify_locations(path)
    except ssl.SSLError:
        raise BadConfig(f"{key}: {path} holds no certificate in PEM form") from None


def _load_pair(context: ssl.SSLContext, key: str, certificate_path: str, key_path: str) -> None:
    try:
        context.load_cert_chain(certificate_path, key_path, _no_passphrase)
    except ssl.SSLError as e:
        if e.reason == "KEY_VALUES_MISMATCH":
            raise BadConfig(f"{key}: {key_path} is not the key of the certificate in {certificate_path}") from None
        raise BadConfig(f"{key}: {key_path} holds no private key in PEM form that fits {certificate_path}") from None
    except _Locked:
        raise BadConfig(f"{key}: {key_path} wants a passphrase, and there is nobody to ask: use a key without one") from None


class _Locked(Exception):
    pass


def _no_passphrase() -> str:
    """Asked by OpenSSL, which would ask the terminal otherwise."""
    raise _Locked
