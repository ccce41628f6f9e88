"""The variables of a cell, from rank 0 back to the namespace in which the next cell runs.

Values may come from a cluster that the notebook does not trust with code: they travel as JSON and as arrays of NumPy
without pickle, and nothing here unpickles anything. Functions and classes are made of the cell's source, which the
notebook has.
"""
