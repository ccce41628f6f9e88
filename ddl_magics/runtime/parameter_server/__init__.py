"""The parameter server: its process, its clients, and the update rules."""
