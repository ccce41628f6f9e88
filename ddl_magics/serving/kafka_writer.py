"""Messages to a topic of Kafka: none is written twice, and while the broker is away they wait in memory.

The server's own environment imports this module: it needs confluent-kafka beside the standard library.
"""

from __future__ import annotations

import sys
from typing import Any
from urllib.parse import urlsplit

#: How long a broker may be away before messages are dropped, and how much memory they may take meanwhile.
PATIENCE_MS = 600_000
WAITING_KIB = 128 * 1024


class KafkaWriter:
    """Writes to one topic. `dropped`: messages that could not be written. One thread calls its methods."""

    def __init__(self, uri: str) -> None:
        """uri: kafka://HOST:PORT/TOPIC. ValueError, one line, for another, or without confluent-kafka."""
        brokers, self._topic = address(uri)
        try:
            from confluent_kafka import Producer
        except ImportError:
            raise ValueError(
                f"a log in Kafka needs confluent-kafka: {sys.executable} -m pip install confluent-kafka"
            ) from None
        self.dropped = 0
        self._producer: Any = Producer(
            {
                "bootstrap.servers": brokers,
                "enable.idempotence": True,
                "delivery.timeout.ms": PATIENCE_MS,
                "queue.buffering.max.kbytes": WAITING_KIB,
                "linger.ms": 50,
                "compression.type": "lz4",
            }
        )

    def send(self, key: str, value: bytes) -> None:
        """Take a message, to write it soon."""
        try:
            self._producer.produce(self._topic, value, key.encode(), on_delivery=self._delivered)
        except BufferError:  # the broker is away, and the memory for what waits is full
            self.dropped += 1
        self._producer.poll(0)

    def flush(self, seconds: float) -> int:
        """Wait at most so long until all is written; returns how many messages are not."""
        return int(self._producer.flush(seconds))

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self.dropped += 1


def address(uri: str) -> tuple[str, str]:
    """(brokers, topic) of kafka://HOST:PORT/TOPIC. ValueError, one line, for another."""
    parts = urlsplit(uri)
    topic = parts.path.strip("/")
    if "@" in uri:
        raise ValueError("leave user and password out of the log's address, which is stored and shown")
    if parts.scheme != "kafka" or not parts.netloc or not topic or "/" in topic:
        raise ValueError(f"write the log's topic as kafka://HOST:PORT/TOPIC, not {uri}")
    return parts.netloc, topic
