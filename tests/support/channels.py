"""A connection that keeps what is sent on it."""


class SentFrames:
    """`sent` has (kind, value) of each frame."""

    def __init__(self):
        self.sent = []

    def send_json(self, kind, value):
        self.sent.append((kind, value))

    def send(self, kind, content):
        self.sent.append((kind, bytes(content)))
