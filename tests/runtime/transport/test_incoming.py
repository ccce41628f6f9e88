"""A file that comes in chunks is whole, or it is told why not."""

import errno
import hashlib

import pytest

from ddl_magics.runtime.transport import incoming
from ddl_magics.runtime.transport.messages import CHUNK_BYTES

CONTENT = bytes(range(256)) * (CHUNK_BYTES // 256 + 1)


def header(content=CONTENT, **wrong):
    return {"size": len(content), "sha256": hashlib.sha256(content).hexdigest(), **wrong}


def test_blocks_have_the_files_bytes_and_arrive(tmp_path):
    source = tmp_path / "source"
    source.write_bytes(CONTENT)
    assert incoming.size_and_checksum(str(source)) == header()
    blocks = list(incoming.blocks(str(source)))
    assert [len(block) for block in blocks] == [CHUNK_BYTES, 256]
    file = incoming.IncomingFile(str(tmp_path / "file"), header())
    assert [file.write(block) for block in blocks] == [False, True]
    assert (tmp_path / "file").read_bytes() == CONTENT and file.problem is None


def test_more_bytes_than_announced_and_a_wrong_checksum_are_refused(tmp_path):
    file = incoming.IncomingFile(str(tmp_path / "longer"), header(b"abc"))
    assert not file.write(b"ab")
    with pytest.raises(ValueError, match="more bytes than announced"):
        file.write(b"cd")
    file = incoming.IncomingFile(str(tmp_path / "other"), header(b"abc"))
    with pytest.raises(ValueError, match="checksum"):
        file.write(b"abd")


def test_an_incomplete_file_is_deleted(tmp_path):
    path = tmp_path / "file"
    file = incoming.IncomingFile(str(path), header())
    file.write(b"abc")
    file.abort()
    assert not path.exists()
    file.abort()


def test_a_file_that_cannot_be_made_has_a_problem_and_counts_its_bytes(tmp_path):
    file = incoming.IncomingFile(str(tmp_path / "none" / "file"), header(b"abc"))
    assert file.problem.errno == errno.ENOENT
    assert [file.write(b"ab"), file.write(b"c")] == [False, True]


def test_a_full_disk_is_a_problem_and_leaves_nothing(tmp_path):
    path = tmp_path / "file"
    file = incoming.IncomingFile(str(path), header())
    file._file.close()
    file._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
    path.write_bytes(b"")
    assert not file.write(CONTENT[:3])
    assert file.problem.errno == errno.ENOSPC and not path.exists()
    assert file.write(CONTENT[3:])
