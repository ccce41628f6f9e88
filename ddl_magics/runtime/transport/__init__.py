"""Connections between the processes of a run: authentication, frames, files, shared memory."""
