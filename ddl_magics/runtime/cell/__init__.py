"""The user's cell on a rank: the names that it uses, its execution, how it ended."""
