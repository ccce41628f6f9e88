"""A rank's context: who it is, how it reaches its peers, what it has to report. One a process, shared by all hooks."""

import hashlib
import os
import signal
import threading
import warnings

from . import events, messages, strategies

#: Flags of a `Part`: what a rank wants everybody to know with its next collective.
STOP_FIT, STOP_RUN, NOT_FINITE, UNCHECKED = 1, 2, 4, 8


class StopRun(BaseException):
    """The run was asked to stop, and has finished its step: leaves the cell."""


class _Interruptible:
    """Turns the interrupts of `Rank.ask_to_stop` into KeyboardInterrupt where that can do no harm."""

    def __init__(self, rank):
        self._rank = rank

    def __enter__(self):
        if self._rank.stop_asked:
            raise StopRun
        signal.signal(signal.SIGINT, self._on_interrupt)
        self._rank.in_cell = True

    def __exit__(self, *_):
        self._rank.in_cell = False
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _on_interrupt(self, _signal, _frame):
        if self._rank.fitting:
            return  # its next step ends it
        if not self._rank._sending:
            raise KeyboardInterrupt
        self._rank._interrupted = True


class Rank:
    """rank, size, is_chief, strategy, seed, scratch; `ring` (all-reduce) or `server` (ps) once connected.

    size: how many ranks train a model together; workers: how many the run has.
    """

    def __init__(self, config, channel):
        self.rank, self.workers = config["rank"], config["size"]
        self.is_chief = self.rank == 0
        self.strategy, self.seed, self.scratch = config["strategy"], config["seed"], config["scratch"]
        self.in_ensemble = self.strategy == strategies.ENSEMBLE
        self.size = 1 if self.in_ensemble or self.strategy in strategies.NATIVE else self.workers
        self.seed += self.rank if self.in_ensemble else 0
        self.own_steps = strategies.own_steps(self.strategy, config["rule"])
        self.config = config
        self.ring = self.server = None
        self.cluster = None  # TensorFlow's own, a `tf_cluster.TfCluster`
        self.stop_asked = self.in_cell = self.fitting = False
        self._sending = self._interrupted = False
        self.error = None  # what a hook raised inside TensorFlow, which would wrap it
        self.models = []  # every model fitted, in order of its first fit
        self._channel = channel

    @property
    def reduces(self):
        """Whether all ranks take every step together: gradients are summed over them."""
        return self.strategy == "allreduce" and self.size > 1 and not self.own_steps

    @property
    def place(self):
        """How far this rank is in its epoch, for collectives to compare."""
        return self.step if self.reduces else self.meetings

    def connect(self, peers, place):
        """Meet the peers, whose addresses the driver has told; `place` is where they reach this rank, if they do."""
        if place is not None:
            from . import rendezvous

            self.ring = rendezvous.connect(place, peers["addresses"])
        elif self.strategy == "ps":
            from . import parameter_shards

            secret, run, attempt = bytes.fromhex(self.config["secret"]), self.config["run"], self.config["attempt"]
            self.server = parameter_shards.connect(peers["servers"], secret, run, self.rank, attempt, 30.0)
        if self.strategy in strategies.NATIVE:
            from . import tf_cluster

            self.cluster = tf_cluster.TfCluster(self)

    def prepare(self):
        """Import TensorFlow, seed all ranks of a model alike, install the hooks. Returns the device's name."""
        import keras
        import tensorflow as tf

        from . import keras_fit, telemetry

        # Said of every dataset, as `fit` has shuffle=True for a default, and of every model that was not trained yet.
        warnings.filterwarnings("ignore", "`shuffle=True` was passed, but will be ignored")
        warnings.filterwarnings("ignore", "Skipping variable loading for optimizer")
        warnings.filterwarnings("ignore", "Seed .* from outer graph might be getting used")  # the run's
        gpus = tf.config.list_physical_devices("GPU")
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
        keras.utils.set_random_seed(self.seed % 2**32)
        if self.cluster is not None:
            from . import tf_fit

            self.cluster.enter()
            tf_fit.install(self)
        else:
            keras_fit.install(self)
        if not gpus:
            if self.config.get("gpus") and self.strategy != strategies.TF_PS:  # whose worker is another process
                message = "Spark gave this worker GPU %s, and TensorFlow sees none: it needs a build for GPUs, and CUDA"
                self.emit("notice", level="warning", message=message % ", ".join(self.config["gpus"]))
            return None
        details = tf.config.experimental.get_device_details(gpus[0])
        return details.get("device_name") or telemetry.device_name(None, 1)

    # -- the state of training, which the hooks share

    def start_training_state(self):
        import tensorflow as tf

        self.fit, self.epoch, self.step = -1, 0, 0
        self.model = None  # the one that is being fitted
        self.hooks = None  # those of its Keras, a `keras_fit.KerasHooks`
        self.taken_up = None  # of the fit in progress, a `checkpointing.Fit`
        self.stop_requested = False  # by a callback of this rank
        self.stop_agreed = self.run_stop_agreed = False  # by all ranks, in a collective
        self.checks_finite = True
        self.waited = 0.0  # seconds spent in collectives in this step,
        self.copied = self.wired = 0.0  # of which to move and add data on this host, and on the network
        self.additive = {}
        self.in_apply = False
        self.share = None
        self.loss_sums = False
        self.in_compiled_loss = False  # what `compile` was given is being computed
        self.sync = None  # the callback of the fit in progress by which ranks of steps of their own meet
        self.meetings = 0  # of ranks that take steps of their own, in this epoch
        self.calls = 0  # collectives called by the cell itself
        self.exchanges = 0  # of gradients
        self.has_train_data = False
        self._told = set()
        self.row_counter = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.last_rows = tf.Variable(0, dtype=tf.int64, trainable=False)  # of the last step

    def rows(self):
        """Rows that this rank has trained on so far."""
        return int(self.row_counter.numpy())

    def begin_fit(self, model, hooks):
        self.fit += 1
        self.epoch = self.step = 0
        self.stop_requested = self.stop_agreed = False
        self.has_train_data = False
        self.model, self.hooks, self.fitting = model, hooks, True
        if all(model is not known for known in self.models):
            self.models.append(model)

    def end_fit(self):
        self.model, self.fitting = None, False

    def note_collective(self):
        """Adds the time of the ring's last collective to that of the step."""
        spent = self.ring.spent
        self.waited += self.ring.waited
        self.copied += spent.copy
        self.wired += spent.wire

    def guarded(self, function):
        """A function for TensorFlow to call: what it raises is kept, as TensorFlow wraps it."""

        def call(*arrays):
            try:
                return function(*arrays)
            except BaseException as error:
                self.error = self.error or error
                raise

        return call

    def begin_step(self, share):
        """While a step is traced: the share in work, and how its loss turns out to be reduced."""
        self.share, self.loss_sums, self._loss_kinds = share, False, set()

    def end_step(self):
        self.share = None

    def note_loss(self, reduction, weighted):
        """Called for every loss of the step. ValueError for one that cannot be put together from the ranks' shares.

        A loss of the cell's own step that is not reduced is the cell's to reduce, to a mean as usual.
        """
        if self.share is None or (reduction in ("none", None) and not self.in_compiled_loss):
            return
        if weighted and reduction == "mean_with_sample_weight":
            raise ValueError(
                "reduction='mean_with_sample_weight' divides by the weights of a batch, which differ from worker to "
                "worker; use 'sum_over_batch_size', or --strategy ps"
            )
        self._loss_kinds.add("sum" if reduction in ("sum", "none", None) else "mean")
        if len(self._loss_kinds) > 1:
            raise ValueError("the losses of this model mix reduction='sum' with means; use one kind, or --strategy ps")
        self.loss_sums = "sum" in self._loss_kinds

    def leave(self, outcome):
        """Tell the peers that this rank takes part no more."""
        goodbye = {"finished": "its cell has ended", "stopped": "it was stopped"}.get(outcome, "it failed")
        if self.cluster is not None:
            self.cluster.leave(goodbye)
        if self.ring is not None:
            self.ring.close(goodbye)
        if self.server is not None:
            self.server.leave()

    def ask_to_stop(self):
        """Called by the thread that hears the driver: a fit ends after its step, other code of the cell at once."""
        self.stop_asked = True
        if self.in_cell:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # also wakes what waits for a lock
        if self.cluster is not None:
            timer = threading.Timer(self.cluster.STOP_SECONDS, self._abort_cluster)
            timer.daemon = True
            timer.start()

    def _abort_cluster(self):
        if self.in_cell and not self.fitting:
            self.cluster.abort()

    def give_up(self, error):
        """End this process with `error` as what its rank has failed of. From any thread."""
        from . import outcome

        self._channel.send_json(messages.END, outcome.failed(error, self))
        os._exit(1)

    def interruptible(self):
        """A context manager around the cell's code: within it, and not within a fit, a stop is a KeyboardInterrupt."""
        return _Interruptible(self)

    # -- reports

    def emit(self, kind, **fields):
        self._sending = True  # half a frame would be the end of the connection
        try:
            self._channel.send_json(messages.EVENTS, [events.make(kind, self.rank, **fields)])
        finally:
            self._sending = False
        if self._interrupted:
            self._interrupted = False
            raise KeyboardInterrupt

    def tell_once(self, level, message):
        """Let the user read a line, from the chief, and never again in this run."""
        if self.is_chief and message not in self._told:
            self.emit("notice", level=level, message=message)
        self._told.add(message)

    def send_artifact(self, name, path):
        """Stream a file to the driver."""
        self._stream(path, {"name": name}, messages.ARTIFACT, messages.CHUNK)

    def send_checkpoint(self, path, position):
        """Stream a checkpoint to the driver, from any thread, one at a time. position: a `checkpoint.Position`."""
        self._stream(path, dict(position._asdict(), name=position.file), messages.CHECKPOINT, messages.PIECE)

    def _stream(self, path, about, announcement, piece):
        digest = hashlib.sha256()
        with open(path, "rb") as file:
            for block in iter(lambda: file.read(messages.CHUNK_BYTES), b""):
                digest.update(block)
        header = dict(about, size=os.path.getsize(path), sha256=digest.hexdigest())
        self._channel.send_json(announcement, header)
        with open(path, "rb") as file:
            for block in iter(lambda: file.read(messages.CHUNK_BYTES), b""):
                self._channel.send(piece, block)
