"""Certificates and keys: what fits is taken, everything else is one error that names option and file."""

import logging
import ssl
from pathlib import Path
from typing import Any

import pytest

from gq_gateway import tls
from gq_proto.errors import BadConfig
from gq_run.options import Config
from gq_run.settings import SHARED
from tests.certificates import Pair, self_signed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def ours(folder: Path) -> Pair:
    return self_signed(folder, "ours")


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Pair:
    return self_signed(folder, "theirs")


def config(section: str = "http", **files: str) -> Config:
    return Config(SHARED, {f"{section}.tls.{name}": path for name, path in files.items()})


def test_without_files_there_is_no_tls() -> None:
    assert tls.load(config(), "http") is None and tls.load(config(), "grpc") is None


@pytest.mark.parametrize("section", ["http", "grpc"])
def test_what_fits_is_taken(section: str, ours: Pair, theirs: Pair) -> None:
    found = tls.load(config(section, certFile=ours.certificate, keyFile=ours.key), section)
    assert found and found.context.verify_mode == ssl.CERT_NONE and found.client_ca is None
    assert found.context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert found.certificate == Path(ours.certificate).read_bytes() and found.key == Path(ours.key).read_bytes()
    mutual = tls.load(config(section, certFile=ours.certificate, keyFile=ours.key, clientCaFile=theirs.certificate), section)
    assert mutual and mutual.context.verify_mode == ssl.CERT_REQUIRED
    assert mutual.client_ca == Path(theirs.certificate).read_bytes()
    assert [one["subject"] for one in mutual.context.get_ca_certs()] == [((("commonName", "theirs"),),)]


def refusal(**files: str) -> str:
    with pytest.raises(BadConfig) as error:
        tls.load(config(**files), "http")
    assert "\n" not in error.value.message and "BEGIN" not in error.value.message
    return error.value.message


def test_one_without_the_other(ours: Pair) -> None:
    assert "http.tls.keyFile is missing" in refusal(certFile=ours.certificate)
    assert "http.tls.certFile is missing" in refusal(keyFile=ours.key)
    assert "http.tls.certFile is missing" in refusal(clientCaFile=ours.certificate)


@pytest.mark.parametrize("what", ["certFile", "keyFile", "clientCaFile"])
def test_files_that_cannot_be_read_or_are_none(what: str, ours: Pair, folder: Path) -> None:
    good = {"certFile": ours.certificate, "keyFile": ours.key, "clientCaFile": ours.certificate}
    for path, why in ((str(folder / "nothing"), "No such file"), (str(folder), "Is a directory"), ("\0", "null byte")):
        said = refusal(**good | {what: path})
        assert said.startswith(f"http.tls.{what}: cannot read {path}") and why in said
    junk = folder / "junk.pem"
    for text in (b"", b"nonsense\n", b"\xff" * 100, b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        junk.write_bytes(text)
        said = refusal(**good | {what: str(junk)})
        assert said.startswith(f"http.tls.{what}: {junk} holds no ")


def test_files_that_do_not_belong_together(ours: Pair, theirs: Pair) -> None:
    assert refusal(certFile=ours.certificate, keyFile=theirs.key) == \
        f"http.tls.keyFile: {theirs.key} is not the key of the certificate in {ours.certificate}"


def test_a_key_with_a_passphrase_asks_nobody(folder: Path) -> None:
    locked = self_signed(folder, "locked", "secret")
    assert "wants a passphrase" in refusal(certFile=locked.certificate, keyFile=locked.key)


class Renewing:
    """Files that a test writes, and what the listener makes of them, at a time of the test's."""

    def __init__(self, folder: Path, first: Pair, ca: Pair) -> None:
        self.files = {name: folder / f"{name}.pem" for name in tls.FILES}
        self.now = 0.0
        self.write(certFile=first.certificate, keyFile=first.key, clientCaFile=ca.certificate)
        given = config(**{name: str(path) for name, path in self.files.items()})
        loaded = tls.load(given, "http")
        assert loaded
        self.made = tls.Renewed(given, "http", loaded, logging.getLogger("goqueue.gateway"), lambda: self.now)

    def write(self, **sources: str) -> None:
        for name, source in sources.items():
            new = self.files[name].with_suffix(".new")
            new.write_bytes(Path(source).read_bytes())
            new.rename(self.files[name])

    def at(self, now: float) -> tls.Tls:
        self.now = now
        return self.made.current()


def test_files_that_change_are_taken_up_and_those_that_will_not_do_are_not(
        tmp_path: Path, ours: Pair, theirs: Pair, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("goqueue").propagate = True
    files = Renewing(tmp_path, ours, ours)
    first = files.at(5.0)
    assert files.at(7.0) is first and not caplog.records
    files.write(certFile=theirs.certificate)                       # its key comes later
    assert files.at(7.5) is first and not caplog.records, "not looked at yet"
    assert files.at(8.5) is first and files.at(9.9) is first
    assert [record.levelname for record in caplog.records] == ["ERROR"], "told once"
    files.write(keyFile=theirs.key)
    second = files.at(11.0)
    assert second.certificate == Path(theirs.certificate).read_bytes() and second.context is not first.context
    files.write(clientCaFile=theirs.certificate)
    assert [one["subject"] for one in files.at(13.0).context.get_ca_certs()] == [((("commonName", "theirs"),),)], "and no other"
    files.files["keyFile"].unlink()
    assert files.at(15.0) is files.at(17.0) and files.at(17.0).key == second.key
    files.write(certFile=ours.certificate, keyFile=ours.key)
    assert files.at(19.0).key == first.key
    assert "BEGIN" not in caplog.text


def test_a_connection_gets_what_is_current_when_it_comes(tmp_path: Path, ours: Pair, theirs: Pair) -> None:
    files = Renewing(tmp_path, ours, ours)
    context = files.made.context()
    before = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True)
    files.write(certFile=theirs.certificate, keyFile=theirs.key)
    files.now = 5.0
    after = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True)
    assert before.context is not after.context and after.context is files.made.current().context


def test_options_have_short_names() -> None:
    names: dict[str, Any] = {option.key: option.env for option in SHARED if ".tls." in option.key}
    assert names["http.tls.certFile"] == "GOQUEUE_HTTP_TLS_CERT" and names["grpc.tls.clientCaFile"] == "GOQUEUE_GRPC_TLS_CLIENT_CA"
