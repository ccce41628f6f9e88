"""What a user asks of --data, checked as far as it can be without a Spark job."""

from .feed_columns import FeedError, arrange, check_frame, choose, describe, frame_named, is_spark


class Plan:
    """A checked wish: which frames, which columns, how dealt. The arguments are those of `feed.check`."""

    def __init__(self, value, spec, namespace):
        self.name = spec.get("data") or "the DataFrame"
        if isinstance(value, str):
            value = frame_named("--data", value, namespace)
        check_frame("--data", self.name, value)
        self.features, self.label = choose(self.name, value, spec.get("features"), spec.get("label"))
        self.names = self.features + ([] if self.label is None else [self.label])
        self.columns = [describe(self.name, value, name) for name in self.names]
        self.arrangement = arrange(self.features, self.label, self.columns)
        self.size = 1 if spec.get("strategy") == "single" else spec["workers"]
        #: Where nobody adds up the ranks' figures, the chief validates alone, and needs all rows for that.
        self.whole = spec.get("strategy") != "allreduce"
        self.rows = _chosen(value, self.names)
        self.seed = int(spec["seed"]) % (1 << 64)
        self.fraction, self.validation_rows, self.validation_name = 0.0, None, None
        wanted = spec.get("validation")
        if isinstance(wanted, str):
            self._take_validation(wanted, namespace)
        elif wanted is not None:
            if not 0 < wanted < 1:
                raise FeedError("--validation %s: give a fraction between 0 and 1, or the name of a DataFrame" % wanted)
            self.fraction = float(wanted)

    def _take_validation(self, name, namespace):
        frame, self.validation_name = frame_named("--validation", name, namespace), name
        missing = [column for column in self.names if column not in map(str, frame.columns)]
        if missing:
            raise FeedError(
                "--validation %s: it has no column %r, which %s has and the training uses"
                % (name, missing[0], self.name)
            )
        for column in self.columns:
            other = describe(name, frame, column["name"])
            if (other["depth"], other["dtype"] == "S") != (column["depth"], column["dtype"] == "S"):
                raise FeedError(
                    "--validation %s: column %r is of another kind than in %s" % (name, column["name"], self.name)
                )
        self.validation_rows = _chosen(frame, self.names)


def _chosen(frame, names):
    """The columns to be read. Of a Spark DataFrame here and not later, where other threads use Spark too."""
    if not is_spark(frame):
        return frame
    return frame.select(["`%s`" % name.replace("`", "``") for name in names])
