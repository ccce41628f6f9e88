"""The verbs of `%ddl`, and of `ddl-magics` in a terminal."""
