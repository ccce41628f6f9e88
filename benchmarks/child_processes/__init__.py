"""Code that runs in other processes than the benchmark itself: its children, and the cells that its ranks run."""
