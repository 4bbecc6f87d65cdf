"""Certificate and key of a listener, and whose certificates callers must show: read and checked once, at the start.

The files are PEM: the certificate with its chain, the key without a passphrase, and for mutual TLS the authorities whose
certificates are taken. What cannot be read, is no PEM, or does not fit together is one error that names option and file.
Never logs what is in them.
"""

import ssl
from dataclasses import dataclass

from gq_proto.errors import BadConfig
from gq_run.options import Config


@dataclass(frozen=True)
class Tls:
    """`context` for HTTP; the files' bytes for gRPC, which has a TLS of its own. `client_ca` None: callers show none."""

    context: ssl.SSLContext
    certificate: bytes
    key: bytes
    client_ca: bytes | None


def load(config: Config, section: str) -> Tls | None:
    """Of the listener "http" or "grpc"; None when it speaks plainly. BadConfig."""
    names = {what: f"{section}.tls.{what}" for what in ("certFile", "keyFile", "clientCaFile")}
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
