"""The options of `%%distributed`: one table, and what reads it."""
