"""The certificate of a run, made by the driver's JVM: Python's own library cannot make any.

A certificate is a self-signed one of X.509, version 3 (RFC 5280), for an ECDSA key on the curve P-256. Whoever has the
key and the certificate belongs to the run, so that nobody looks at the names in it.
"""

from __future__ import annotations

import base64
import secrets
import ssl
import textwrap
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

#: Clocks of hosts differ, and runs may last: the certificate is valid from so long ago, and for so long.
EARLY_SECONDS, VALID_SECONDS = 2 * 86_400, 10 * 365 * 86_400

_INTEGER, _BITS, _OBJECT, _TEXT, _SEQUENCE, _SET, _TIME, _VERSION = 0x02, 0x03, 0x06, 0x0C, 0x30, 0x31, 0x17, 0xA0
_COMMON_NAME = bytes.fromhex("550403")  # 2.5.4.3
_ECDSA_WITH_SHA256 = bytes.fromhex("2a8648ce3d040302")  # 1.2.840.10045.4.3.2


def make(sc: SparkContext, name: str) -> str:
    """PEM text of a new private key and its certificate. name: in the certificate."""
    jvm: Any = sc._jvm
    security = jvm.java.security
    generator = security.KeyPairGenerator.getInstance("EC")
    generator.initialize(256)
    pair = generator.generateKeyPair()
    signature = security.Signature.getInstance("SHA256withECDSA")
    signature.initSign(pair.getPrivate())
    content = _content(name, _encoded(jvm, pair.getPublic(), "X509EncodedKeySpec"), time.time())
    signature.update(content)
    certificate = _value(_SEQUENCE, content, _algorithm(), _value(_BITS, b"\0", bytes(signature.sign())))
    return _key_to_pem(_encoded(jvm, pair.getPrivate(), "PKCS8EncodedKeySpec")) + ssl.DER_cert_to_PEM_cert(certificate)


def _encoded(jvm: Any, key: Any, specification: str) -> bytes:
    """A key in DER. Its own class is hidden in a module of Java's, those of specifications are not."""
    kind = jvm.java.lang.Class.forName("java.security.spec." + specification)
    return bytes(jvm.java.security.KeyFactory.getInstance("EC").getKeySpec(key, kind).getEncoded())


def _content(name: str, public_key: bytes, start: float) -> bytes:
    """What is signed. public_key: a SubjectPublicKeyInfo in DER."""
    entry = _value(_SEQUENCE, _value(_OBJECT, _COMMON_NAME), _value(_TEXT, name.encode()[:64]))
    subject = _value(_SEQUENCE, _value(_SET, entry))
    times = (time.gmtime(start - EARLY_SECONDS), time.gmtime(start + VALID_SECONDS))
    validity = [_value(_TIME, time.strftime("%y%m%d%H%M%SZ", moment).encode()) for moment in times]
    return _value(
        _SEQUENCE,
        _value(_VERSION, _value(_INTEGER, b"\x02")),  # version 3
        _value(_INTEGER, b"\x01" + secrets.token_bytes(15)),  # a serial number above 0
        _algorithm(),
        subject,
        _value(_SEQUENCE, *validity),
        subject,
        public_key,
    )


def _algorithm() -> bytes:
    return _value(_SEQUENCE, _value(_OBJECT, _ECDSA_WITH_SHA256))


def _value(tag: int, *contents: bytes) -> bytes:
    """A value in DER: its tag, its length, its content."""
    content = b"".join(contents)
    if len(content) < 128:
        return bytes((tag, len(content))) + content
    length = len(content).to_bytes(2, "big").lstrip(b"\0")
    return bytes((tag, 0x80 | len(length))) + length + content


def _key_to_pem(der: bytes) -> str:
    """A PKCS 8 key as PEM."""
    lines = textwrap.wrap(base64.b64encode(der).decode(), 64)
    return "\n".join(["-----BEGIN PRIVATE KEY-----", *lines, "-----END PRIVATE KEY-----", ""])
