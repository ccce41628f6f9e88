"""Hyperparameter search: Optuna samples and prunes on the notebook's machine, and the trials are ordinary runs."""

from ddl_magics.search.search import BestTrial, Search, ask_to_stop

__all__ = ["BestTrial", "Search", "ask_to_stop"]
