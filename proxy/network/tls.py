"""TLS: the certificate of the service, and the certificates that it wants of clients.

The options have the names that uvicorn and vLLM give them. Versions of the protocol before 1.2 are refused.
"""

import ssl
from pathlib import Path

from proxy.settings.network import TLSOptions


class Certificates:
    """The certificates that a server's listeners use for new connections."""

    def __init__(self, options: TLSOptions) -> None:
        """Raises `ValueError` as `make_context` does."""
        self.context = make_context(options)
        """None: connections are plain."""

    def renewed(self, options: TLSOptions) -> ssl.SSLContext | None:
        """A `context` of the files as they are now. Open connections keep their certificates.

        Raises `ValueError` as `make_context` does, and if TLS would begin or end.
        """
        context = make_context(options)
        if (context is None) is not (self.context is None):
            raise ValueError("ssl_certfile: TLS begins or ends with a restart only")
        return context


def make_context(options: TLSOptions) -> ssl.SSLContext | None:
    """The TLS context that `options` ask for; None without a certificate.

    Raises `ValueError` with the option at fault if a file cannot be used.
    """
    if options.ssl_certfile is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # With renegotiation, one connection could have any number of costly handshakes.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["http/1.1"])
    _load_certificate(context, options, options.ssl_certfile)
    if options.ssl_ca_certs is not None:
        _load_authorities(context, options.ssl_ca_certs)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _load_certificate(context: ssl.SSLContext, options: TLSOptions, certfile: Path) -> None:
    _read("ssl_certfile", certfile)
    keyfile = options.ssl_keyfile
    if keyfile is not None:
        _read("ssl_keyfile", keyfile)
    secret = options.ssl_keyfile_password
    try:
        # Without the function, OpenSSL would ask for a password at the terminal.
        context.load_cert_chain(certfile, keyfile, lambda: secret.get_secret_value() if secret else "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ValueError("ssl_keyfile: the key does not belong to the certificate") from None
        place = f"{certfile} and {keyfile}" if keyfile else f"{certfile}"
        hint = "" if secret else " (if the key has a password: WEIR_SSL_KEYFILE_PASSWORD)"
        raise ValueError(
            f"ssl_certfile: {place} hold no certificate in PEM form with a key that can be read{hint}"
        ) from None


def _load_authorities(context: ssl.SSLContext, file: Path) -> None:
    _read("ssl_ca_certs", file)
    try:
        context.load_verify_locations(file)
    except ssl.SSLError:
        raise ValueError(f"ssl_ca_certs: {file} holds no certificate in PEM form") from None


def _read(option: str, file: Path) -> None:
    """Raises `ValueError` if the file cannot be read: OpenSSL does not say which file it means."""
    try:
        file.read_bytes()
    except OSError as error:
        raise ValueError(f"{option}: {file} cannot be read ({error.strerror})") from None


PLAIN = Certificates(TLSOptions())
"""Those of a port that speaks plain HTTP."""
