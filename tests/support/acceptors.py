"""A listener like the driver's, for tests of who gets in and of what travels."""

from ddl_magics.runtime.transport import wire
from support.rings import CREDENTIALS
from support.until import until

DRIVER = wire.Identity("driver", -1, 0)


class Acceptor:
    """Admits the peers of the run for whom `admit` gives no reason against it. channels: their connections."""

    def __init__(self, credentials=CREDENTIALS, admit=lambda identity: None, host="127.0.0.1"):
        self.channels, self.credentials = [], credentials
        self.listener = wire.Listener(host, credentials, DRIVER, admit, self.channels.append)
        self.address = self.listener.address

    def wait_for(self, count=1):
        """The first `count` connections."""
        until(lambda: len(self.channels) >= count, 5, pause=0.002)
        return self.channels[:count]

    def close(self):
        self.listener.close()
        for channel in self.channels:
            channel.close(0)
