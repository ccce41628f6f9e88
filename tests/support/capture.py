"""What travels over TCP on loopback or to a host, as somebody who listens there sees it. Needs root, and Linux.

A process of its own writes the packets to a file: a thread of a test that computes would be too slow, and lose some.
"""

import os
import secrets
import socket
import struct
import subprocess
import sys
import tempfile

_ALL_PROTOCOLS = 3
_OUTGOING = 4  # on loopback, each packet is seen as outgoing and as incoming
_ETHERNET_BYTES, _TCP = 14, 6
_RECEIVE_BUFFER = 33  # SO_RCVBUFFORCE
_PACKET, _STATISTICS = 263, 6  # SOL_PACKET, PACKET_STATISTICS
_BUFFER_BYTES = 1 << 30
_LENGTH = struct.Struct("!I")
#: Before what ends a capture: no address, and a protocol that nobody listens for.
_EXPERIMENTAL = bytes(12) + b"\x88\xb5"
LOOPBACK = "lo"
_LONGEST_SECONDS = 300


class Capture:
    """`with Capture() as capture:` around what is to be seen.

    interface: loopback, or a host's end of its link (chaos/hosts.py), where each packet is seen once.
    streams: the bytes that have travelled, by (source port, destination port); those of other tests are among them.
    """

    def __init__(self, interface=LOOPBACK):
        self._interface = interface
        self.streams = {}

    def __enter__(self):
        self._file = tempfile.TemporaryFile()
        self._end = secrets.token_hex(16)
        command = [sys.executable, "-S", os.path.abspath(__file__), self._end, self._interface]
        self._process = subprocess.Popen(command, stdout=self._file, stderr=subprocess.PIPE)
        assert self._process.stderr.readline() == b"listening\n"
        return self

    def __exit__(self, kind, *_):
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender, self._process, self._file:
            sender.bind((self._interface, 0))
            sender.send(_EXPERIMENTAL + self._end.encode())
            said = self._process.stderr.read()
            self._file.seek(0)
            while length := self._file.read(_LENGTH.size):
                self._add(self._file.read(*_LENGTH.unpack(length)))
        assert kind or said == b"lost 0\n", f"the capture is not complete: {said.decode()}"

    def holds(self, needle):
        return any(needle in stream for stream in self.streams.values())

    def beginning(self, *prefixes):
        """The streams that begin with one of these."""
        return [bytes(stream) for stream in self.streams.values() if stream.startswith(prefixes)]

    def _add(self, packet):
        if packet[0] >> 4 != 4 or packet[9] != _TCP:
            return
        tcp = packet[(packet[0] & 15) * 4 : struct.unpack("!H", packet[2:4])[0] or None]
        ports = struct.unpack("!HH", tcp[:4])
        if tcp[13] & 2:  # SYN: a port that is used again begins anew
            self.streams[ports] = bytearray()
        elif ports in self.streams:
            self.streams[ports] += tcp[(tcp[12] >> 4) * 4 :]


def _listen(end, interface):
    """Writes each packet to stdout, after its length, until one holds `end`."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS)) as wire:
        wire.setsockopt(socket.SOL_SOCKET, _RECEIVE_BUFFER, _BUFFER_BYTES)
        wire.bind((interface, 0))
        wire.settimeout(_LONGEST_SECONDS)
        os.write(2, b"listening\n")
        packet = bytearray(1 << 17)
        while True:
            size, about = wire.recvfrom_into(packet)
            if packet.endswith(end, 0, size):
                break
            if about[2] == _OUTGOING or interface != LOOPBACK:
                sys.stdout.buffer.write(_LENGTH.pack(size - _ETHERNET_BYTES) + packet[_ETHERNET_BYTES:size])
        sys.stdout.buffer.flush()
        _, lost = struct.unpack("II", wire.getsockopt(_PACKET, _STATISTICS, 8))
        os.write(2, f"lost {lost}\n".encode())


if __name__ == "__main__":
    _listen(sys.argv[1].encode(), sys.argv[2])
