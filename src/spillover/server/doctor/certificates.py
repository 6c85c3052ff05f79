"""Checks that the server's certificate is valid and does not expire soon."""

import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from spillover.model.units import SECOND, format_duration
from spillover.server.doctor.findings import Finding, ok, problem, warning
from spillover.server.doctor.inspection import Inspection
from spillover.server.doctor.running import SOON
from spillover.server.tls import BadCertificate, load_identity

_RENEW = "make a new one, such as with `spill cert init`; a running server loads it by itself"


def certificates(inspection: Inspection) -> Iterator[Finding]:
    """Check the configured certificate, or the one that a running server uses."""
    tls = None if inspection.config is None else inspection.config.tls
    if tls is not None:
        try:
            load_identity(tls, inspection.clock() / SECOND)
        except BadCertificate as error:
            yield problem("certificate", str(error), _RENEW)
        else:
            yield _ending(inspection, "certificate", tls.cert, Path(tls.cert).read_bytes())
        if tls.ca is not None:
            yield _ending(inspection, "authority", tls.ca, Path(tls.ca).read_bytes())
    elif inspection.server is not None and (url := urlsplit(inspection.url)).scheme == "https":
        shown = ssl.get_server_certificate((url.hostname or "", url.port or 443), timeout=10)
        yield _ending(inspection, "certificate", inspection.url, shown.encode())


def _ending(inspection: Inspection, check: str, where: str, pem: bytes) -> Finding:
    from cryptography import x509  # noqa: PLC0415 - heavy, and only for servers with TLS

    ends = x509.load_pem_x509_certificates(pem)[0].not_valid_after_utc
    left = int(ends.timestamp() * SECOND) - inspection.clock()
    if left <= 0:
        return problem(check, f"the certificate of {where} expired on {ends.date()}", _RENEW)
    if left <= SOON:
        return warning(check, f"the certificate of {where} expires in {format_duration(left)}", _RENEW)
    return ok(check, f"valid until {ends.date()}")
