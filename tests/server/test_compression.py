"""Answers are compressed where that is worth it, and the client takes it."""

import gzip

from ddl_magics.server import base, handlers


def test_small_answers_and_those_to_clients_without_gzip_are_plain():
    large = "x" * (base.COMPRESS_BYTES + 1)
    assert base._encode({"a": 1}, compress=True) == b'{"a":1}'
    assert base._encode(large, compress=False) == large.encode()
    assert gzip.decompress(base._encode(large, compress=True)) == large.encode()


def test_of_a_long_answer_each_part_is_compressed_or_none():
    parts = ["a", "", "ü" * 1000]
    assert b"".join(handlers._encoded(iter(parts), compress=False)) == "".join(parts).encode()
    assert gzip.decompress(b"".join(handlers._encoded(iter(parts), compress=True))) == "".join(parts).encode()
