"""A trained model scores the rows of a DataFrame."""
