"""Images per second of ResNet50 and other networks, counted as Horovod's synthetic benchmark counts them.

    python -m benchmarks.resnet50 [--quick] [--model resnet50|inception_v3|vgg19|mobilenet] [--workers 1 2 4]
        [--image 224] [--batch-size 32] [--num-warmup-batches 10] [--num-batches-per-iter 10] [--num-iters 10]
        [--source synthetic|tfrecord] [--policy mixed_bfloat16] [--link 10] [--others PYTHON] [--only VARIANT ...]

The network of keras.applications has random weights. Images are made once, or decoded from JPEG in a TFRecord file that
the benchmark writes. After the warm-up, an iteration is so many batches, and a sample is its images per second; the
mean has an interval of 1.96 standard deviations of the samples, as in Horovod's script.

The workers are processes with one thread for operations, on this machine:

one worker            plain Keras; "one rank" is the same as a rank of the runtime
one host              all-reduce through shared memory
overlap               all-reduce in a ring over TCP, in buckets during the backward pass; each worker is on a host of
                      its own, a network namespace behind a link of --link Gbit/s (needs root)
after                 the same in one bucket after the backward pass
bf16                  overlap, with --compression bf16
MultiWorkerMirrored   tf_keras, on one host; "between hosts" with the links. Needs the environment of `make bench-env`

At the end stand the efficiency of each variant to one worker, and what a model fitted to the ranks' own measurements
(docs/scaling.md) predicts for 8, 16 and 32 hosts with other links. keras.applications has no Inception v1: inception_v3
has its place.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from ddl_magics.errors import NoPrediction
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.scaling import ScalingReport
from ddl_magics.scaling.measurement import measured_run

from .child_processes.image_network import CLASSES, NETWORKS, Training
from .harness import command, report
from .harness.free_ports import free_addresses
from .harness.json_process import CHILDREN, JsonProcess, ask, close, cpu_environment, module_command
from .harness.network_hosts import Hosts, obstacle
from .harness.ranks import Ranks
from .training_throughput import OTHERS_PYTHON

ALONE, RANK, HOST, OVERLAP, AFTER, BF16 = "one worker", "one rank", "one host", "overlap", "after", "bf16"
MIRRORED, MIRRORED_HOSTS = "MultiWorkerMirrored", "MultiWorkerMirrored between hosts"
TOGETHER = (HOST, OVERLAP, AFTER, BF16, MIRRORED, MIRRORED_HOSTS)
BETWEEN_HOSTS = (OVERLAP, AFTER, BF16, MIRRORED_HOSTS)
WORKERS = (1, 2, 4)
#: Images of an epoch that is predicted: what is done once an epoch hardly counts.
EPOCH = 1_000_000
PREDICTED, LINKS = (8, 16, 32), (1.0, 10.0, 25.0, 100.0)
QUICK = {"image": 32, "batch_size": 2, "num_warmup_batches": 1, "num_batches_per_iter": 1, "num_iters": 2}
#: Images of a TFRecord file, which are read again and again.
RECORDS = 512
#: The ports of MultiWorkerMirrored in a network namespace, which nobody else uses.
PORT = 40_000

Events = dict[int, list[dict[str, Any]]]


def rates(seconds: Sequence[float], training: Training) -> list[float]:
    """Images per second of one worker, in each iteration."""
    return [training["batch"] * training["batches"] / each for each in seconds]


def interval(samples: Sequence[float]) -> float:
    """What is added to and subtracted from the mean: 1.96 standard deviations, as Horovod's script has it."""
    return 1.96 * pstdev(samples) if len(samples) > 1 else float("nan")


@contextmanager
def team(way: str, workers: int, options: argparse.Namespace, events: Events) -> Iterator[list[JsonProcess]]:
    """The processes of a variant. events: rank -> what it has reported, if it is a rank of the runtime."""
    environment = cpu_environment(one_thread=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        hosts = stack.enter_context(Hosts(workers, f"{options.link:g}gbit")) if way in BETWEEN_HOSTS else None
        if way in (ALONE, MIRRORED, MIRRORED_HOSTS):
            addresses = free_addresses(workers)
            if hosts is not None:
                addresses = [f"{hosts.address(rank)}:{PORT}" for rank in range(workers)]
            commands = [
                module_command("image_network", "plain")
                if way == ALONE
                else module_command("image_network", "mirrored", rank, *addresses, python=options.others)
                for rank in range(workers)
            ]
            if hosts is not None:
                commands = [[*hosts.command(rank), *each] for rank, each in enumerate(commands)]
            processes = [JsonProcess(each, environment) for each in commands]
            stack.callback(close, processes)
        else:
            cell, compression = (CHILDREN / "image_network.py").read_text(), "bf16" if way == BF16 else None

            def heard(rank: int, found: list[dict[str, Any]]) -> None:
                events[rank] += found

            ranks = Ranks(cell, workers, folder, environment, on_events=heard, hosts=hosts, compression=compression)
            stack.callback(ranks.close)
            processes = ranks.processes
        yield processes


def measure(options: argparse.Namespace) -> tuple[dict[str, list[float]], dict[int, Events]]:
    """(variant -> images per second of a worker in each iteration, workers -> events of the ranks on one host)."""
    samples: dict[str, list[float]] = {}
    heard: dict[int, Events] = {}
    with tempfile.TemporaryDirectory() as folder:
        source = records(Path(folder) / "images.tfrecord", options.image) if options.source == "tfrecord" else ""
        for workers in options.workers:
            for way in ways(workers, options):
                training: Training = {
                    "network": options.model,
                    "image": options.image,
                    "batch": options.batch_size,
                    "workers": workers,
                    "warmup": options.num_warmup_batches,
                    "batches": options.num_batches_per_iter,
                    "iterations": options.num_iters,
                    "source": source,
                    "policy": options.policy,
                    "overlap": way != AFTER,
                }
                events: Events = defaultdict(list)
                with team(way, workers, options, events) as processes:
                    # They wait for one another in each step: the first worker's time is that of all.
                    samples[variant(workers, way)] = rates(ask(processes, training)[0], training)
                if way in (RANK, HOST):
                    heard[workers] = events
                found = samples[variant(workers, way)]
                rate = f"{fmean(found):.2f} ± {interval(found):.2f} images/s per worker"
                print(f"{variant(workers, way)}: {rate}", file=sys.stderr, flush=True)
    return samples, heard


def ways(workers: int, options: argparse.Namespace) -> list[str]:
    """The variants with so many workers."""
    if workers == 1:
        return [ALONE, RANK]
    chosen = [way for way in TOGETHER if options.only is None or way in options.only]
    if not options.others.exists():
        chosen = [way for way in chosen if way not in (MIRRORED, MIRRORED_HOSTS)]
    return [way for way in chosen if way not in BETWEEN_HOSTS] if obstacle() else chosen


def records(path: Path, image: int) -> str:
    """Write a TFRecord file of random images as JPEG; returns its path."""
    import numpy as np
    import tensorflow as tf

    random = np.random.default_rng(0)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _ in range(RECORDS):
            coarse = random.integers(0, 255, (image // 8 + 1, image // 8 + 1, 3), np.uint8)
            pixels = coarse.repeat(8, 0).repeat(8, 1)[:image, :image]
            encoded = tf.io.encode_jpeg(pixels).numpy()
            features = {
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(random.integers(CLASSES))])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    return str(path)


def variant(workers: int, way: str) -> str:
    return way if workers == 1 else f"{workers} workers, {way}"


def table(samples: Mapping[str, Sequence[float]]) -> str:
    """A row for each variant: images per second of a worker and of all, and the efficiency to one worker."""
    alone = fmean(samples[ALONE]) if ALONE in samples else float("nan")
    rows = []
    for name, found in samples.items():
        workers, mean, wide = workers_of(name), fmean(found), interval(found)
        each, total = f"{mean:.2f} ± {wide:.2f}", f"{workers * mean:.2f} ± {workers * wide:.2f}"
        rows.append((name, len(found), each, total, f"{mean / alone:.0%}"))
    return report.table(("", "iterations", "images/s per worker", "in all", "efficiency"), rows)


def workers_of(name: str) -> int:
    return 1 if name in (ALONE, RANK) else int(name.split()[0])


def what_if(heard: Mapping[int, Events], batch: int) -> str:
    """Images per second of more hosts with other links, by the model of `%ddl scale`, or why it says nothing."""
    made = ScalingReport("resnet50")
    for workers, events in sorted(heard.items()):
        flat = [{"rank": rank, **event} for rank, found in events.items() for event in found]
        spec = RunSpec(cell="", strategy="allreduce", workers=workers, seed=workers)
        found = measured_run(spec, flat)
        if found is not None:
            made.runs.append(found)
    rows = []
    try:
        (alone,) = made.predict(1, batch=batch, rows=EPOCH).rows
        for workers in PREDICTED:
            for link in LINKS:
                (each,) = made.predict(workers, batch=batch * workers, gbit=link, rows=EPOCH).rows
                rate = each.rate
                bounds = f"{rate.value:.1f} ({rate.low:.1f} to {rate.high:.1f})"
                efficiency = rate.value / (workers * alone.rate.value)
                rows.append((f"{workers} hosts, {link:g} Gbit/s", bounds, f"{efficiency:.0%}"))
    except NoPrediction as error:
        return f"no prediction: {error}"
    return report.table(("predicted", "images/s in all", "efficiency"), rows)


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("resnet50", __doc__, "few small images and batches")
    parser.add_argument("--model", choices=tuple(NETWORKS), default="resnet50")
    parser.add_argument("--workers", type=int, nargs="+", default=WORKERS, metavar="N", help="instead of 1 2 4")
    parser.add_argument("--image", type=int, default=224, help="height and width; 224 by default")
    parser.add_argument("--batch-size", type=int, default=32, metavar="N", help="of each worker; 32 by default")
    for name in ("num-warmup-batches", "num-batches-per-iter", "num-iters"):
        parser.add_argument(f"--{name}", type=int, default=10, metavar="N", help="10 by default")
    parser.add_argument("--source", choices=("synthetic", "tfrecord"), default="synthetic")
    parser.add_argument("--policy", default="float32", help="Keras' dtype policy, such as mixed_bfloat16")
    parser.add_argument("--link", type=float, default=10.0, metavar="GBIT", help="of each host; 10 Gbit/s by default")
    parser.add_argument("--others", type=Path, default=OTHERS_PYTHON, help="a Python with tf_keras")
    parser.add_argument("--only", nargs="*", choices=TOGETHER, metavar="VARIANT", help="some of the variants")
    options = parser.parse_args(arguments)
    if options.quick:
        vars(options).update(QUICK)
    samples, heard = measure(options)
    print(table(samples))
    if problem := obstacle():
        print(f"nothing was measured between hosts: {problem}")
    if not options.others.exists():
        print("MultiWorkerMirrored was not measured: run `make bench-env` first, or give --others PYTHON")
    print(what_if(heard, options.batch_size))
    report.finish(samples, [], settings={name: str(value) for name, value in vars(options).items()})


if __name__ == "__main__":
    main()
