"""The options around --data, checked as far as that needs no Spark job."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Mapping

import numpy as np

from ..run_spec import RunSpec
from . import roles, sorting, sources
from .cache_option import CacheOption
from .columns import DataError, check_frame, describe_columns, frame_named, is_spark, selected
from .roles import Roles, choose
from .sequences import SequencePlan

if TYPE_CHECKING:
    from .records import DataFrame

DEAL_SEED = 0
#: Of the rows that each rank gets where ranks come and go: one that is lost takes none with it.
WHOLE_BYTES = 1 << 30


class DataPlan:
    """Which rows and columns become which tensors for whom. Raises `DataError`, one line.

    value: the DataFrame, or its name. spec: its options of --data, workers and strategy count. namespace: the
    session's globals, where DataFrames are found by name. code: what reads the files into a DataFrame, unless their
    names say it.
    """

    def __init__(self, value: Any, spec: RunSpec, namespace: Mapping[str, Any], code: str = "") -> None:
        self.name: str = spec.data or "the DataFrame"
        if isinstance(value, str):
            value = frame_named("--data", value, namespace)
        check_frame("--data", self.name, value)
        if spec.where:
            value = sources.filtered(self.name, value, spec.where)
        self.frame = value
        choice = choose(self.name, value, Roles.from_spec(spec))
        self._names = choice.names()
        if not code and spec.data and sources.is_files(spec.data):
            code = sources.reader_code(spec.data)
        self.columns = describe_columns(self.name, value, self._names, code)
        roles.mark_sparse(self.columns, spec.sparse or ())
        feature_columns = sum(len(tensor.columns) for tensor in choice.features)
        windows = spec.sequence_length is not None
        roles.mark_lists(self.columns, feature_columns, roles.padding_of(spec.pad or ()), windows)
        self.arrangement = choice.arrange(self.columns)
        for tensor in roles.indices(self.arrangement["label"]):  # which a dataset has as int64, and no other number
            for index in self.arrangement["tensors"][tensor]:
                if np.dtype(self.columns[index]["dtype"]) == np.uint64:
                    self.columns[index]["dtype"] = "<i8"
        self.size = spec.ranks
        #: Each rank gets all rows if they take no more bytes than these, and else a share: 0 for ranks that stay.
        self.whole_bytes = WHOLE_BYTES if spec.may_change else 0
        #: Whether every rank gets all rows for validation: the chief validates alone where no all-reduce sums metrics.
        self.replicates_validation = spec.strategy not in ("allreduce", "average")
        self.sequences = SequencePlan.from_spec(spec)
        #: Hints for the user, a line each.
        self.notices: list[str] = []
        if self.sequences is not None and sorting.is_text(value, self.sequences.order_by):
            order = "the rows are in the order of its characters, where '10' is before '9'"
            self.notices.append("--order-by %s is text: %s" % (self.sequences.order_by, order))
        texts = choice.texts_among_numbers(self.columns)
        if texts and sources.is_files(self.name):  # of a DataFrame, the notebook knows the types before
            words = self.name, "%s is" % texts[0] if len(texts) == 1 else "%s are" % ", ".join(texts)
            self.notices.append("--data %s: %s text, so that the features are a dict of columns and no matrix" % words)
        self.rows = self._selected(self.name, value)
        #: Of the rows' places and of the split. Not the run's: its next run is to find the same shares in the cache.
        self.seed = DEAL_SEED
        self.cache = CacheOption.read(spec.cache)
        #: The share of the rows that is held out for validation; or the rows of another DataFrame, and its name.
        self.fraction = 0.0
        self.validation_rows: DataFrame | None = None
        self.validation_name = ""
        validation = spec.validation
        if isinstance(validation, str):
            if self.sequences is None or self.sequences.since is None:
                self._take_validation(validation, namespace)
        elif validation is not None:
            if not 0 < validation < 1:
                raise DataError(
                    "--validation %s: give a fraction between 0 and 1, or the name of a DataFrame" % validation
                )
            self.fraction = float(validation)

    def of_size(self, workers: int) -> DataPlan:
        """The plan for another number of workers."""
        plan = copy.copy(self)
        plan.size = workers
        return plan

    @property
    def frames(self) -> list[DataFrame]:
        """The rows for training, and those for validation where another DataFrame has them."""
        return [self.rows] + ([] if self.validation_rows is None else [self.validation_rows])

    def _take_validation(self, name: str, namespace: Mapping[str, Any]) -> None:
        frame, self.validation_name = frame_named("--validation", name, namespace), name
        keys = [self.sequences.order_by, *self.sequences.group_by] if self.sequences else []
        frame_columns = set(map(str, frame.columns))
        missing = [column for column in self._names + keys if column not in frame_columns]
        if missing:
            raise DataError(
                "--validation %s: it has no column %r, which %s has and the training uses"
                % (name, missing[0], self.name)
            )
        for column, described in zip(self.columns, describe_columns(name, frame, self._names)):
            if (described["depth"], described["dtype"] == "S") != (column["depth"], column["dtype"] == "S"):
                raise DataError(
                    "--validation %s: column %r is of another kind than in %s" % (name, column["name"], self.name)
                )
        self.validation_rows = self._selected(name, frame)

    def _selected(self, name: str, frame: DataFrame) -> DataFrame:
        """`frame` with the columns that are used, in their order; all of them for pandas. Sorted, for windows.

        Spark's are selected here and not when the run has its turn, as other threads use the session by then.
        """
        if is_spark(frame) and frame.isStreaming:
            raise DataError("%s streams, and training needs an end: write it to files, and read these" % name)
        if self.sequences is not None:
            if is_spark(frame):
                return sorting.sort_spark(name, frame, self._names, self.sequences, self.size)
            return sorting.sort_pandas(name, frame, self.sequences)
        if not is_spark(frame):
            return frame
        return selected(frame, self._names)
