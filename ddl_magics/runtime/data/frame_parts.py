"""The parts of a DataFrame's plan in the JVM, for those who tell whether its rows are the same as before."""

from __future__ import annotations

from typing import Any, List


class NotKnown(Exception):
    """Why the rows are not kept: words that follow a colon."""


def elements(sequence: Any) -> List[Any]:
    """The elements of a Scala Seq."""
    return [sequence.apply(index) for index in range(sequence.size())]


def name_of(value: Any) -> str:
    """The name of a Java object's class, without its package."""
    return str(value.getClass().getSimpleName())


def hashed(jvm: Any, value: Any) -> str:
    """The SHA-256 of a serializable object of the JVM. Raises `NotKnown`."""
    digest = jvm.java.security.MessageDigest.getInstance("SHA-256")
    nowhere = jvm.org.apache.commons.io.output.NullOutputStream()
    stream = jvm.java.io.ObjectOutputStream(jvm.java.security.DigestOutputStream(nowhere, digest))
    try:
        stream.writeObject(value)
        stream.close()
    except Exception as error:  # Py4J's
        raise NotKnown("its values cannot be compared") from error
    return bytes(digest.digest()).hex()


def serialized(jvm: Any, value: Any) -> bytes:
    """A serializable object of the JVM, which should be small. Raises `NotKnown`."""
    content = jvm.java.io.ByteArrayOutputStream()
    stream = jvm.java.io.ObjectOutputStream(content)
    try:
        stream.writeObject(value)
        stream.close()
    except Exception as error:  # Py4J's
        raise NotKnown("its values cannot be compared") from error
    return bytes(content.toByteArray())


def field(value: Any, name: str) -> Any:
    """A private field of a Java object. Raises Py4J's errors where there is none."""
    found = value.getClass().getDeclaredField(name)
    found.setAccessible(True)
    return found.get(value)
