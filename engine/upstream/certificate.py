"""Says in words why another server's certificate is not trusted. No I/O."""

import ssl

import aiohttp

UNTRUSTED = "shows a certificate that is not trusted"
REMEDY = "SSL_CERT_FILE may name a file with the certificate of its authority"


def certificate_fault(error: BaseException) -> str | None:
    """The reason, as a sentence without its subject, the server. None: something else failed."""
    if not isinstance(error, aiohttp.ClientConnectorCertificateError):
        return None
    cause = error.certificate_error
    why = cause.verify_message if isinstance(cause, ssl.SSLCertVerificationError) else str(cause)
    return f"{UNTRUSTED} ({why}): {REMEDY}"
