"""A trained model outside of its notebook: exported, registered, as a stage of a Spark pipeline."""
