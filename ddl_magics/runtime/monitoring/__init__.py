"""A model in use is compared with the data that it was trained on: the reference, counts per bin, drift."""
