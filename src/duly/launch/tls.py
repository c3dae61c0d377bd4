"""Checks a server's TLS certificate and key before anything is started."""

import ssl
from pathlib import Path

import msgspec

from duly.errors import ConfigError


class Certificate(msgspec.Struct, frozen=True):
    """The files of a TLS certificate chain and its private key."""

    chain: Path
    key: Path


def find_certificate(chain: Path | None, key: Path | None) -> Certificate | None:
    """Return the certificate, or None without flags; raises ConfigError if it cannot be used."""
    if chain is None and key is None:
        return None
    if chain is None or key is None:
        raise ConfigError("TLS needs both: --tls-cert FILE and --tls-key FILE.")
    for flag, file in (("--tls-cert", chain), ("--tls-key", key)):
        try:
            file.open("rb").close()
        except OSError as error:
            raise ConfigError(f"Cannot read {file} ({flag}): {error.strerror}.") from error
    _check(chain, key)
    return Certificate(chain, key)


def _check(chain: Path, key: Path) -> None:
    prompts = []

    def no_passphrase() -> str:
        # Otherwise OpenSSL would prompt for the passphrase at the terminal.
        prompts.append(True)
        return ""

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(chain, key, password=no_passphrase)
    except ssl.SSLError as error:
        why = "they are not a certificate and a key in PEM format"
        if prompts:
            why = "the key is encrypted with a passphrase; store it without one"
        elif error.reason == "KEY_VALUES_MISMATCH":
            why = "the key belongs to another certificate"
        raise ConfigError(f"Cannot use {chain} and {key} for TLS: {why}.") from error
