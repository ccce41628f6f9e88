"""An executor of `executors.Executors`: runs pickled tasks from standard input, and answers on standard output."""

import os
import pickle
import struct
import sys
import traceback

_LENGTH = struct.Struct(">Q")


def write(pipe, data):
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


def read(pipe):
    """The next message. EOFError at the end."""
    (length,) = _LENGTH.unpack(_exactly(pipe, _LENGTH.size))
    return _exactly(pipe, length)


def _exactly(pipe, size):
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return data


def main():
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else is printed
    while True:
        try:
            task, rank = pickle.loads(read(sys.stdin.buffer))
        except EOFError:
            return
        try:
            answer = False, list(task(rank, ()))
        except Exception:
            answer = True, traceback.format_exc()
        write(answers, pickle.dumps(answer))


if __name__ == "__main__":
    main()
