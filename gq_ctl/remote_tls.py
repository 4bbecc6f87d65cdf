"""TLS to a gateway: whose certificates are taken, which one is shown, and what is wrong when it fails, in one line.

Imported only for https: ssl takes longer to import than all the rest.
"""

import ssl
from typing import Final

from gq_proto.errors import BadConfig

NO_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")
WANTS_ONE: Final = ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE", "TLSV1_ALERT_UNKNOWN_CA",
                    "SSLV3_ALERT_BAD_CERTIFICATE", "SSLV3_ALERT_CERTIFICATE_UNKNOWN", "TLSV1_ALERT_DECRYPT_ERROR")


def context(ca: str, cert: str) -> ssl.SSLContext:
    """`ca`: PEM file of authorities to be trusted instead of the system's; `cert`: PEM file of the caller's certificate and key. ""
    for none. BadConfig."""
    try:
        made = ssl.create_default_context(cafile=ca or None)
    except OSError as error:
        raise _useless("--gateway-ca", ca, "certificate", error) from None
    try:
        if cert:
            made.load_cert_chain(cert, password=_no_passphrase)
    except (OSError, _Locked) as error:
        raise _useless("--gateway-cert", cert, "certificate with its key (without a passphrase)", error) from None
    return made


def _useless(option: str, path: str, what: str, error: Exception) -> BadConfig:
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        return BadConfig(f"{option}: cannot read {path}: {error.strerror}")
    return BadConfig(f"{option}: {path} holds no {what} in PEM form")


class _Locked(Exception):
    pass


def _no_passphrase() -> str:
    raise _Locked


def said(error: OSError, where: str) -> str:
    """Why the gateway at `where` (host:port) is not spoken to; "" when that is no matter of TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _distrusted(error, where)
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    if reason in NO_TLS:
        return f"{where} does not speak TLS: write http://"
    if reason in WANTS_ONE:
        return f"{where} wants a certificate of yours that it trusts: give --gateway-cert FILE (GOQUEUE_GATEWAY_CERT)"
    return f"no TLS with {where}: {reason.lower().replace('_', ' ')}" if reason else ""


def _distrusted(error: ssl.SSLCertVerificationError, where: str) -> str:
    why = error.verify_message.rstrip(".")
    if "ismatch" in why:                       # Hostname mismatch, IP address mismatch
        return f"the certificate of {where} is for other names: {why}"
    if "expired" in why or "not yet valid" in why:
        return f"the certificate of {where} is not valid now: {why}"
    return f"{where} shows a certificate of nobody known here ({why}): give its authority, --gateway-ca FILE (GOQUEUE_GATEWAY_CA)"
