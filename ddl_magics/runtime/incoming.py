"""A file on its way from a rank to the driver's disk: it counts when all of it has come, as it was announced."""

import hashlib
import os


class Incoming:
    """header: {"size", "sha256"}, and what the caller wants to know of it; path: where it is written."""

    def __init__(self, path, header):
        self.path, self.header = path, header
        self.size, self.sha256 = int(header["size"]), str(header["sha256"])
        self._file = open(path, "wb")  # noqa: SIM115 - open until the last chunk has come
        self._digest, self._received = hashlib.sha256(), 0

    def write(self, block):
        """Take the next bytes; True when they were the last. ValueError where they are not what was announced."""
        self._received += len(block)
        if self._received > self.size:
            raise ValueError("more bytes than announced")
        self._digest.update(block)
        self._file.write(block)
        if self._received < self.size:
            return False
        self._file.close()
        if self._digest.hexdigest() != self.sha256:
            raise ValueError("the checksum of a file does not match")
        return True

    def drop(self):
        """The rest will not come."""
        self._file.close()
        os.unlink(self.path)
