"""Self-signed certificates, made by openssl when a test needs one."""

import subprocess
from pathlib import Path
from typing import NamedTuple


class Pair(NamedTuple):
    """Paths of PEM files. The certificate is its own authority, for localhost and 127.0.0.1."""

    certificate: str
    key: str


def self_signed(folder: Path, name: str, passphrase: str = "") -> Pair:
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    secret = ["-passout", f"pass:{passphrase}"] if passphrase else ["-nodes"]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "2",
                    "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", *secret,
                    "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True, timeout=30)
    return Pair(str(certificate), str(key))
