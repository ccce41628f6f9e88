"""What users of Keras, Spark and other tools type, and the name of it here."""

from __future__ import annotations

from collections.abc import Iterable

from ddl_magics.wording import nearest

#: Flags of other tools -> flags of this package.
FLAGS = {
    **dict.fromkeys(("-n", "-np", "--np", "--num-workers", "--num-proc", "--n", "--executors", "--slots"), "--workers"),
    **dict.fromkeys(("--df", "--dataset", "--dataframe"), "--data"),
    **dict.fromkeys(("--target-column", "--labels", "--y"), "--label"),
    **dict.fromkeys(("--x", "--columns"), "--features"),
    **dict.fromkeys(("--output", "-o", "--save"), "--out"),
    **dict.fromkeys(("--env", "--py-files", "--archives"), "--files"),
}
STRATEGIES = {
    **dict.fromkeys(("sync", "synchronous", "horovod", "ring", "ddp", "dp", "data-parallel"), "allreduce"),
    **dict.fromkeys(("parameter-server", "parameter_server", "async", "asynchronous", "downpour"), "ps"),
    **dict.fromkeys(("mirrored", "multiworkermirrored", "multi-worker-mirrored"), "tf-allreduce"),
    **dict.fromkeys(("local", "none", "one"), "single"),
    **dict.fromkeys(("averaging", "fedavg", "local-sgd"), "average"),
}
VERBS = {
    **dict.fromkeys(("list", "ls", "ps", "status", "history"), "runs"),
    **dict.fromkeys(("kill", "cancel", "end", "abort", "interrupt"), "stop"),
    **dict.fromkeys(("delete", "remove", "rm", "purge"), "clean"),
    **dict.fromkeys(("info", "describe", "view", "open"), "show"),
    **dict.fromkeys(("output", "print", "tail"), "logs"),
    **dict.fromkeys(("doctor", "test", "version"), "check"),
    **dict.fromkeys(("cluster", "connect", "livy"), "use"),
    **dict.fromkeys(("session", "start"), "spark"),
}

#: Arguments of Keras that users expect among the options -> where they belong.
_OF_KERAS = {
    **dict.fromkeys(
        ("epochs", "epoch", "verbose", "callbacks", "shuffle", "validation-split", "class-weight"), "model.fit"
    ),
    **dict.fromkeys(("optimizer", "loss", "metrics", "jit-compile", "steps-per-execution"), "model.compile"),
    **dict.fromkeys(("lr", "learning-rate", "momentum", "weight-decay"), "the optimizer"),
}


def flag(typed: str, flags: Iterable[str]) -> str:
    """A hint for an unknown option: a sentence with a space before it."""
    keras = _OF_KERAS.get(typed.lstrip("-").replace("_", "-").lower())
    if keras:
        return f" It is an argument of {keras}, in the cell."
    return did_you_mean(typed, FLAGS, flags) or " See %%distributed --help."


def strategy(typed: str, strategies: Iterable[str]) -> str:
    return did_you_mean(typed, STRATEGIES, strategies)


def verb(typed: str, verbs: Iterable[str]) -> str:
    return did_you_mean(typed, VERBS, verbs)


def did_you_mean(typed: str, synonyms: dict[str, str], names: Iterable[str]) -> str:
    """A hint for another word than these names: a sentence with a space before it."""
    names = tuple(names)
    name = synonyms.get(typed.lower())
    return f" Did you mean {name}?" if name in names else nearest(typed, names)
