"""The runs that `%ddl scale` makes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from IPython.core.error import UsageError

from ddl_magics.options.line import masked_settings
from ddl_magics.options.redaction import safely_quoted
from ddl_magics.options.table import BY_FLAG, DEFAULT_RULE, OPTIONS
from ddl_magics.options.values import SEED_LIMIT
from ddl_magics.runtime.parameter_server import update_rules
from ddl_magics.runtime.parameter_server.rule_spec import RATE
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.wording import counted, nearest

#: Strategies that can be compared: all workers train one model, and the cell is the same for any number of them.
STRATEGIES = ("allreduce", "ps", "average")


def read_strategies(text: str) -> tuple[str, ...]:
    """The value of --strategy: strategies to compare, joined by commas."""
    names = tuple(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in STRATEGIES:
            raise UsageError(
                f"%ddl scale compares {', '.join(STRATEGIES)}, not {safely_quoted(name)}.{nearest(name, STRATEGIES)}"
            )
    return names


def variants(
    spec: RunSpec,
    workers: Sequence[int],
    strategies: Sequence[str] = (),
    seeds: int = 1,
    epochs: int | None = None,
    global_batch: bool = False,
) -> Iterator[RunSpec]:
    """The runs to make, in order: all numbers of workers with one seed before the next seed.

    The largest number comes first, so that a Spark that is started for it has room for all.

    Args:
        spec: of the run whose cell is measured.
        workers: numbers of workers.
        strategies: those to measure; empty for the run's own.
        seeds: how many runs there are of each combination, each with another seed.
        epochs: at which each `fit` ends; None for the cell's own number.
        global_batch: --batch-size of the run is the batch of all workers together, with each strategy.

    Raises:
        UsageError: the run's strategy cannot be compared, a secret of it was not stored, or the workers cannot share
            the global batch.
    """
    hidden = masked_settings(spec)
    if hidden:
        raise UsageError(
            f"{spec.name} cannot be run again: --conf {hidden[0]} is a secret, and was not stored: run the cell again, "
            "and scale that run."
        )
    default = "allreduce" if spec.strategy == "single" else spec.strategy
    if not strategies and default not in STRATEGIES:
        raise UsageError(
            f"{spec.name} has --strategy {default}, and %ddl scale compares {', '.join(STRATEGIES)}: name one."
        )
    for number in range(seeds):
        seed = ((spec.seed or 0) + number) % SEED_LIMIT
        for strategy in strategies or (default,):
            for count in sorted(workers, reverse=True):
                variant = _variant(spec, strategy, count, seed, number, epochs)
                yield _with_share_of_batch(variant) if global_batch else variant


def _with_share_of_batch(spec: RunSpec) -> RunSpec:
    """The run with its batch divided among the workers, where `--batch-size` is that of each worker.

    A rule keeps the learning rate then, unless it has a factor of its own: it multiplies the rate by default, because
    each of n workers makes an n-th of the batches, and here each makes all of them.
    """
    if spec.batch_size is None:
        raise UsageError("--global-batch needs a run with --data: without it, the cell itself decides on its batches.")
    if spec.strategy == "allreduce" and spec.rule is None:  # divides it by itself
        return spec
    share, remainder = divmod(spec.batch_size, spec.workers)
    if remainder:
        raise UsageError(
            f"{counted(spec.workers, 'worker')} cannot share a batch of {spec.batch_size} rows equally: run the cell "
            f"with --batch-size {spec.workers * (share + 1)}, or name other --workers."
        )
    return dataclasses.replace(spec, batch_size=share, rule=None if spec.rule is None else _at_own_rate(spec.rule))


def _at_own_rate(rule: str) -> str:
    parsed = update_rules.parse(rule)
    return parsed._replace(settings={RATE.name: 1.0, **parsed.settings}).text


def _variant(spec: RunSpec, strategy: str, workers: int, seed: int, number: int, epochs: int | None) -> RunSpec:
    changes: dict[str, Any] = {
        option.name: None for option in OPTIONS if option.strategies and strategy not in option.strategies
    }
    if strategy != spec.strategy:
        changes["rule"] = DEFAULT_RULE if strategy == "ps" else None
        changes["ps"] = BY_FLAG["--ps"].default if strategy == "ps" else None
    if changes.get("rule", spec.rule) is None:
        changes["window"] = None
    elif spec.window in (None, spec.workers):  # the default
        changes["window"] = workers
    # These belong to the one run, or would conflict with another run.
    for name in ("out", "checkpoint", "resume", "resume_uri", "checkpoints", "trial", "timeout", "target", "wait"):
        changes[name] = None
    return dataclasses.replace(
        spec,
        **changes,
        run="",
        release=None,
        name=f"{spec.name}_{strategy}_{workers}" + (f"_seed{number}" if number else ""),
        strategy=strategy,
        workers=workers,
        seed=seed,
        epochs=epochs,
        parent=spec.run,
    )
