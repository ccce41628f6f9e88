"""The views of a run, all made from its events: the live view, the static block, figures and text."""
