"""What a person sees of a run, drawn from its events alone: the live view, the static block, figures and text."""
