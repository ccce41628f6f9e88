"""Reading the value of an option from its text.

Each function returns the value, or raises a ValueError that says what the value must be: "--workers must be *a whole
number above 0*, not 'four'". It is a UsageError where the message must not show the value, or has more to say.
"""

from __future__ import annotations

import contextlib
import keyword
import re
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from IPython.core.error import UsageError

from ddl_magics.options.redaction import has_password, is_secret
from ddl_magics.runtime import target
from ddl_magics.runtime.collectives import compression
from ddl_magics.runtime.data import transform
from ddl_magics.runtime.data.cache_option import CacheOption
from ddl_magics.runtime.parameter_server import rule_spec, update_rules
from ddl_magics.wording import MAX_QUOTED

SEED_LIMIT = 2**31

#: Of --objective: to be maximized, or minimized.
DIRECTIONS = ("max", "min")


def _whole_number(pattern: str, description: str, allowed: range | None = None) -> Callable[[str], int]:
    """Reads a text of the pattern. description: what it must be. allowed: the numbers, where the pattern has others."""

    def read(text: str) -> int:
        if not re.fullmatch(pattern, text) or (allowed is not None and int(text) not in allowed):
            raise ValueError(description)
        return int(text)

    return read


read_count = _whole_number(r"0*[1-9][0-9]{0,14}", "a whole number above 0")
read_rank = _whole_number(r"[0-9]{1,7}", "the number of a rank, such as 0")
read_port = _whole_number(r"[0-9]{1,5}", "a number from 1 to 65535", range(1, 2**16))
read_horizon = _whole_number(r"[0-9]{1,15}", "a whole number, 0 or above")
read_seed = _whole_number(r"0*[0-9]{1,10}", f"a whole number from 0 to {SEED_LIMIT - 1}", range(SEED_LIMIT))


class WorkerRange(NamedTuple):
    """The value MIN..MAX of --workers."""

    min_workers: int
    max_workers: int

    def __str__(self) -> str:
        return f"{self.min_workers}..{self.max_workers}"


def read_workers(text: str) -> int | WorkerRange:
    least, dots, most = text.partition("..")
    if not dots:
        return int(read_count(text))
    with contextlib.suppress(ValueError):
        bounds = WorkerRange(read_count(least), read_count(most))
        if bounds.min_workers <= bounds.max_workers:
            return bounds
    raise ValueError("a whole number above 0, or MIN..MAX such as 2..4")


def read_counts(text: str) -> tuple[int, ...]:
    """Different counts in ascending order."""
    try:
        return tuple(sorted({read_count(count) for count in text.split(",")}))
    except ValueError as error:
        raise ValueError(f"{error}, or several joined by commas") from None


def read_yes_or_no(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError("yes or no")
    return text == "yes"


def read_share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise ValueError("a share above 0, up to 1")
    return share


def read_identifier(text: str) -> str:
    if keyword.iskeyword(text):
        raise ValueError(f"a name of your own ({text} is a word of Python)")
    if not text.isidentifier():
        similar = re.sub(r"\W", "_", text.strip("“”‘’\"' "))
        short = len(text) <= MAX_QUOTED and similar.isidentifier()
        suggestion = f", such as {similar}" if short and not is_secret(text) else ""
        raise ValueError(f"a Python name (letters, digits, underscores){suggestion}")
    return text


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def _duration(text: str, description: str, units: str = "smhdw") -> float:
    """Seconds of a number with one of the units; description: what the text must be."""
    match = re.fullmatch(rf"([0-9]{{1,12}}(?:\.[0-9]{{1,12}})?)([{units}])", text)
    if not match:
        raise ValueError(description)
    return float(match[1]) * _SECONDS[match[2]]


#: Seconds, 0 or more. A bare 30 is ambiguous, and 30s is a slip that would remove nearly all runs.
read_age = partial(_duration, description="a time such as 12h, 30d, 8w", units="mhdw")


def read_duration(text: str, description: str = "a time such as 30s, 5m, 2h, 1d") -> float:
    seconds = _duration(text, description)
    if seconds <= 0:
        raise ValueError(description)
    return seconds


def read_seconds(text: str) -> float:
    return read_duration(text if text[-1:].isalpha() else f"{text}s", "seconds, or a time such as 90s, 10m, 2h")


def read_size(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,12})?) ?(kB|MB|GB|TB)", text)
    if not match:
        raise ValueError("a size such as 500MB, 10GB")
    return int(float(match[1]) * {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}[match[2]])


def read_validation(text: str) -> float | str:
    try:
        share = float(text)
    except ValueError:
        if text.isidentifier():
            return text
    else:
        if 0 < share < 1:
            return share
    if re.match(r"[0-9]{4}-", text):
        try:
            datetime.fromisoformat(text)
        except ValueError:
            raise ValueError("a date such as 2012-06-30 or 2012-06-30T18:00") from None
        return text
    raise ValueError("a share between 0 and 1, the name of a DataFrame or, with --order-by, a date such as 2012-06-30")


def read_data(text: str) -> str:
    if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:/", text):
        return _checked_uri(text, "files, such as hdfs:///sales/*.parquet")
    if "/" in text or re.search(r"\.(parquet|orc|csv|tfrecords?)(\.gz)?$", text):
        raise ValueError(
            "files with the scheme of their storage, such as hdfs:///sales/*.parquet or file:///data/sales"
        )
    return read_identifier(text)


def read_padding(text: str) -> str:
    """Parse the column and the length of --pad, which are separated by the last "="."""
    name, _, length = text.rpartition("=")
    if not name or not length.isdecimal() or not int(length):
        raise ValueError("COLUMN=LENGTH, such as words=200")
    return text


def read_logs(text: str) -> str:
    """A folder on the notebook's machine, or in a storage that TensorBoard's files can be written to."""
    scheme = text.partition("://")[0].lower() if "://" in text else ""
    if scheme not in ("", "file", "s3", "gs"):
        raise ValueError("a folder of this machine, file:///..., s3://... or gs://...")
    return _checked_uri(text, "a folder, such as logs") if scheme else text


def read_tracking(text: str) -> str:
    """Where MLflow keeps runs."""
    if not re.match(r"(https?|sqlite|postgresql|mysql|mssql)(\+\w+)?://|databricks(://|$)", text):
        raise ValueError("http://HOST:PORT of a tracking server, or a database such as sqlite:///mlflow.db")
    secrets_in = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
    if re.match(r"https?://[^/?#]*@", text):
        raise UsageError(
            f"the URI holds a user name or a token, which would be stored: set it in {secrets_in} instead."
        )
    return _checked_uri(text, "http://HOST:PORT of a tracking server", secrets_in)


def _checked_uri(text: str, expected: str, secrets_in: str = "Hadoop's configuration") -> str:
    """The URI, which has no secrets. expected: what it must be. secrets_in: where secrets belong."""
    try:
        uri = urlsplit(text)
    except ValueError:
        raise ValueError(expected) from None
    if uri.password or has_password(text):
        raise UsageError("the URI holds a password, which would be stored: set it in " + secrets_in + " instead.")
    if uri.query:
        raise UsageError("the URI has a query, which may hold a signature: set that in " + secrets_in + " instead.")
    if not uri.netloc and not uri.path:
        raise ValueError(expected)
    return text


read_uri = partial(_checked_uri, expected="a folder, such as hdfs:///models/mnist")


def read_rule(text: str) -> str:
    try:
        update_rules.parse(text)
    except rule_spec.UnknownRule as error:
        raise UsageError(f"--rule: {error}") from None
    return text


def read_objective(text: str) -> str:
    objectives = [objective.rpartition(":") for objective in text.split(",")]
    if any(not name or direction not in DIRECTIONS for name, _, direction in objectives):
        raise ValueError("a metric and its direction, such as val_accuracy:max, or several: val_accuracy:max,size:min")
    if len({name for name, *_ in objectives}) < len(objectives):
        raise ValueError("different metrics")
    return text


def _checked(read: Callable[[str], Any]) -> Callable[[str], str]:
    """Keeps the text in which `read` finds no mistake: the driver reads it again."""

    def read_text(text: str) -> str:
        read(text)
        return text

    return read_text


read_compression = _checked(compression.read)
read_cache = _checked(CacheOption.read)
read_target = _checked(target.read)
read_transform = _checked(transform.read)


def _pair(text: str, expected: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(expected)
    return key.strip(), value.strip()


read_parameter = partial(_pair, expected="name=value, such as lr=0.01")
read_setting = partial(_pair, expected="key=value, such as spark.executor.memory=4g")
