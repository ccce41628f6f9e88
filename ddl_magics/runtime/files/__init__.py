"""The cell's files: the folder that it works in, what it finds there, and what the chief leaves there."""
