"""A notebook, or a file of cells, run from a terminal or by a scheduler."""
