"""The log in Kafka, with a client that keeps what it is given."""

import sys
from types import SimpleNamespace

import pytest

from ddl_magics.serving import kafka_writer
from ddl_magics.serving.kafka_writer import KafkaWriter, address


class Producer:
    def __init__(self, settings):
        self.settings, self.produced, self.polled, self.room = settings, [], [], True

    def produce(self, topic, value, key, on_delivery):
        if not self.room:
            raise BufferError
        self.produced.append((topic, value, key))
        on_delivery(None if value == b"good" else "no broker", None)

    def poll(self, seconds):
        self.polled.append(seconds)

    def flush(self, seconds):
        return 3 if seconds == 1.5 else 0


def test_messages_are_queued_and_those_that_are_not_written_counted(monkeypatch):
    monkeypatch.setitem(sys.modules, "confluent_kafka", SimpleNamespace(Producer=Producer))
    writer = KafkaWriter("kafka://one:9092,two:9092/log")
    producer = writer._producer
    assert producer.settings["bootstrap.servers"] == "one:9092,two:9092"
    assert producer.settings["enable.idempotence"] is True, "each is written once"
    assert producer.settings["delivery.timeout.ms"] == kafka_writer.PATIENCE_MS
    writer.send("é", b"good")
    assert producer.produced == [("log", b"good", "é".encode())] and writer.dropped == 0
    writer.send("b", b"bad")
    assert writer.dropped == 1
    producer.room = False
    writer.send("c", b"good")
    assert writer.dropped == 2 and producer.polled == [0, 0, 0]
    assert (writer.flush(1.5), writer.flush(2.0)) == (3, 0)


def test_without_the_client_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ValueError, match="pip install confluent-kafka"):
        KafkaWriter("kafka://host/log")


def test_an_address_has_brokers_and_one_topic():
    assert address("kafka://host:9092/log/") == ("host:9092", "log")
    for uri in (
        "host:9092/log",
        "http://host/log",
        "kafka:///log",
        "kafka://host",
        "kafka://host/",
        "kafka://host/a/b",
    ):
        with pytest.raises(ValueError, match=r"write the log's topic as kafka://HOST:PORT/TOPIC, not "):
            address(uri)
    with pytest.raises(ValueError, match="leave user and password out") as refused:
        address("kafka://me:hidden@host/log")
    assert "hidden" not in str(refused.value)
