"""The version, in one place: pyproject.toml reads it here, and a test compares package.json with it."""

__version__ = "0.1.0"
