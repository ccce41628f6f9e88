"""A trained model behind an HTTP and gRPC server on this machine."""
