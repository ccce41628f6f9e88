"""All-reduce, broadcast and gather between ranks: through shared memory, over TCP, over both."""
