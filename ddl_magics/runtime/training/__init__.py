"""An unchanged `model.fit` made distributed: the hooks in Keras, and what each strategy does at them."""
