"""Where requests and labels are logged: a folder of JSON lines, or a topic of Kafka."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import urlsplit

KAFKA = "kafka"
#: The file of a run, and of an export, with the reference of its data.
REFERENCE_FILE = "reference.json"
#: Of a batch, so that a long log is caught up with in steps.
FILES_PER_BATCH, RECORDS_PER_BATCH = 256, 500_000


class BadSource(ValueError):
    """A line: what is wrong with a source, and what to write."""


class LogSource(NamedTuple):
    """A folder, or a topic and the brokers, HOST:PORT,HOST:PORT."""

    uri: str
    topic: str = ""
    brokers: str = ""


def read(option: str, text: str) -> LogSource:
    """The source that `text` names, after `option`. Raises `BadSource`."""
    url = urlsplit(text)
    if url.scheme != KAFKA:
        return LogSource(text)
    topic = url.path.strip("/")
    if "@" in text:
        raise BadSource("%s: leave user and password out of the address, which is stored with the monitor" % option)
    if not url.netloc or not topic or "/" in topic:
        raise BadSource("%s %s: write kafka://HOST:PORT/TOPIC" % (option, text))
    return LogSource(text, topic, url.netloc)


def kafka_package(version: str) -> str:
    """Spark's package of its Kafka source, for this version of Spark; Spark 4 is built for another Scala."""
    return "org.apache.spark:spark-sql-kafka-0-10_%s:%s" % ("2.12" if version.startswith("3.") else "2.13", version)


def stream(session: Any, source: LogSource) -> Any:
    """A streaming DataFrame with the records in its column `value`."""
    if not source.topic:
        return session.readStream.format("text").option("maxFilesPerTrigger", FILES_PER_BATCH).load(source.uri)
    reader = session.readStream.format(KAFKA).option("maxOffsetsPerTrigger", RECORDS_PER_BATCH)
    return _of_topic(reader, source)


def table(session: Any, source: LogSource) -> Any:
    """The same as a DataFrame, of all that is there now."""
    if not source.topic:
        return session.read.text(source.uri)
    return _of_topic(session.read.format(KAFKA), source)


def _of_topic(reader: Any, source: LogSource) -> Any:
    reader = reader.option("kafka.bootstrap.servers", source.brokers).option("subscribe", source.topic)
    return reader.option("startingOffsets", "earliest").load().select("value")
