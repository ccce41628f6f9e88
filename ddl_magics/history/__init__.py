"""Coming back to runs: what each of them ran with, queries, reproduction, files to pass on, other tools' formats."""
