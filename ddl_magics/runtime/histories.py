"""The histories of a run's fits, made from its events: Keras' `History.history` of each."""


def histories(events, member=0):
    """For each call of `fit`, {metric: [value per epoch]}; None stands for NaN.

    An epoch that a later attempt repeats counts once, as the later attempt had it. member: the rank whose model it is,
    in an ensemble.
    """
    fits = {}
    for event in events:
        if event.get("kind") == "fit":
            fits.setdefault(event["fit"], {})
        elif event.get("kind") == ("member" if member else "epoch") and member in (0, event["rank"]):
            fits.setdefault(event["fit"], {})[event["epoch"]] = event["metrics"]
    return [_history(fits[fit]) for fit in sorted(fits)]


def _history(epochs):
    history = {}
    for epoch in sorted(epochs):
        for name, value in epochs[epoch].items():
            history.setdefault(name, []).append(value)
    return history
