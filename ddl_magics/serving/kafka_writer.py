"""Messages to a Kafka topic: each is written once, and they wait in memory while the broker does not answer.

The server's own environment imports this module: it needs confluent-kafka beside the standard library.
"""

from __future__ import annotations

import sys
from typing import Any
from urllib.parse import urlsplit

#: How long messages wait for the broker before they are dropped, and the memory that they may take.
PATIENCE_MS = 600_000
WAITING_KIB = 128 * 1024


class KafkaWriter:
    """Writes to one topic. `dropped`: messages that could not be written. One thread calls its methods."""

    def __init__(self, uri: str) -> None:
        """uri: as `address` takes it. Raises ValueError, one line, as `address`, or without confluent-kafka."""
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
        """Queue a message."""
        try:
            self._producer.produce(self._topic, value, key.encode(), on_delivery=self._delivered)
        except BufferError:  # the broker does not answer, and the queue is full
            self.dropped += 1
        self._producer.poll(0)

    def flush(self, seconds: float) -> int:
        """Wait until all messages are written; returns how many are not after `seconds`."""
        return int(self._producer.flush(seconds))

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self.dropped += 1


def address(uri: str) -> tuple[str, str]:
    """(brokers, topic) of kafka://HOST:PORT/TOPIC. Raises ValueError, one line, for another address."""
    url = urlsplit(uri)
    topic = url.path.strip("/")
    if "@" in uri:
        raise ValueError("leave user and password out of the log's address, which is stored and shown")
    if url.scheme != "kafka" or not url.netloc or not topic or "/" in topic:
        raise ValueError(f"write the log's topic as kafka://HOST:PORT/TOPIC, not {uri}")
    return url.netloc, topic
