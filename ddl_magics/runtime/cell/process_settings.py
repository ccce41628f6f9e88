"""What a process of Python and Keras keeps besides its variables: settings that earlier cells have made travel, too.

`of_process` reads them in the session, where a module that was never imported has none. `apply` sets them on a rank,
before the cell's variables are restored: a model of the notebook may be made of registered objects.
"""

from __future__ import annotations

import ast
import contextlib
import glob
import logging
import os
import site
import sys
import warnings
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Tuple

from .. import random_streams
from ..random_streams import Streams

#: Variables that say how this process was started, or that a rank has of its own.
_OF_PROCESSES: Tuple[str, ...] = (
    "CLICOLOR",
    "FORCE_COLOR",
    "GIT_PAGER",
    "JPY_",
    "JUPYTER",
    "KERAS_BACKEND",
    "LD_",
    "LIVY",
    "MPLBACKEND",
)
_OF_PROCESSES += ("PAGER", "PWD", "PYDEVD", "PYSPARK", "PYTHON", "SPARK", "TERM", "TMPDIR", "CUDA_VISIBLE_DEVICES")
_OF_PROCESSES += ("OMP_", "MKL_", "KMP_", "TF2_BEHAVIOR", "TF_CPP_MIN_LOG_LEVEL", "_")
#: Variables that TensorFlow, TensorBoard and h5py set.
_OF_PROCESSES += ("CRC32C_SW_MODE", "ENABLE_RUNTIME_UPTIME_TELEMETRY", "HDF5_PLUGIN_PATH", "TPU_")
#: Loggers that a kernel or Spark sets itself.
_OF_KERNELS = ("IPython", "asyncio", "ddl_magics", "parso", "py4j", "tornado", "traitlets")
#: The folders of installed packages, which an executor has of its own.
_INSTALLED = ("site-packages", "dist-packages", "/lib/python", "/pyspark", ".zip", ".egg")


#: How a session's seeded random numbers are called.
RANDOM_NUMBERS = "random numbers"


class Setting(NamedTuple):
    """Where a library keeps a setting.

    Attributes:
        name: as a user knows it.
        module: the session has the setting if it has imported this.
        read, write: get and set the value, given the module.
        default: that of a fresh process.
    """

    name: str
    module: str
    read: Callable[[Any], Any]
    write: Callable[[Any, Any], Any]
    default: Any


def _of_functions(name: str, module: str, reader: str, writer: str, default: Any) -> Setting:
    """The setting of a pair of functions: dotted names in the module."""

    def function(root: Any, path: str) -> Any:
        for part in path.split("."):
            root = getattr(root, part)
        return root

    return Setting(
        name,
        module,
        lambda root: function(root, reader)(),
        lambda root, value: function(root, writer)(value),
        default,
    )


def _policy(keras: Any) -> str:
    """ "" where it is that of floatx, which it follows, or there is none yet, which the question would make."""
    state = sys.modules.get("keras.src.backend.common.global_state")
    if state is not None and state.get_global_attribute("dtype_policy") is None:
        return ""
    name: str = keras.mixed_precision.global_policy().name
    return "" if name == keras.backend.floatx() else name


def _pandas_options(pandas: Any) -> Dict[str, Any]:
    registered = pandas._config.config._registered_options
    values = {key: pandas.get_option(key) for key in registered if key not in pandas._config.config._deprecated_options}
    return {key: value for key, value in values.items() if value != registered[key].defval and not callable(value)}


def _set_pandas_options(pandas: Any, options: Mapping[str, Any]) -> None:
    for key, value in options.items():
        with contextlib.suppress(Exception):  # an option that this version does not have
            pandas.set_option(key, value)


#: The order is that in which they are set: a policy follows floatx.
SETTINGS = (
    _of_functions("floatx", "keras", "backend.floatx", "backend.set_floatx", "float32"),
    _of_functions("epsilon", "keras", "backend.epsilon", "backend.set_epsilon", 1e-7),
    _of_functions(
        "image_data_format", "keras", "backend.image_data_format", "backend.set_image_data_format", "channels_last"
    ),
    Setting("dtype policy", "keras", _policy, lambda keras, name: keras.mixed_precision.set_global_policy(name), ""),
    _of_functions(
        "run_functions_eagerly",
        "tensorflow",
        "config.functions_run_eagerly",
        "config.run_functions_eagerly",
        False,
    ),
    Setting(
        "deterministic operations",
        "tensorflow.python.framework.config",
        lambda config: config.is_op_determinism_enabled(),
        lambda config, value: config.enable_op_determinism(),
        False,
    ),
    _of_functions(
        "TensorFloat-32",
        "tensorflow",
        "config.experimental.tensor_float_32_execution_enabled",
        "config.experimental.enable_tensor_float_32_execution",
        True,
    ),
    Setting(
        "errors of NumPy",
        "numpy",
        lambda numpy: numpy.geterr(),
        lambda numpy, value: numpy.seterr(**value),
        {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"},
    ),
    Setting("options of pandas", "pandas", _pandas_options, _set_pandas_options, {}),
)


class ProcessSettings(NamedTuple):
    """The settings of a session that a rank takes over; all can be pickled.

    Attributes:
        values: of `SETTINGS`, by name, where they are not those of a fresh process.
        variables: of the environment, which the session has set since it began.
        paths: folders of `sys.path` that are no installation's.
        levels: of logging, by logger.
        filters: of warnings.
        streams: where a cell has seeded random numbers, else None.
    """

    values: Dict[str, Any]
    variables: Dict[str, str]
    paths: List[str]
    levels: Dict[str, int]
    filters: List[Tuple[Any, ...]]
    streams: "Streams | None"

    def as_tuple(self) -> Tuple[Any, ...]:
        """Of tuples alone: a rank knows this package by another name."""
        return (*self[:-1], self.streams and tuple(self.streams))

    @classmethod
    def of_tuple(cls, values: Tuple[Any, ...]) -> "ProcessSettings":
        return cls(*values)._replace(streams=Streams(*values[-1]) if values[-1] else None)

    @property
    def names(self) -> List[str]:
        """What a user may want to know of: not the settings of messages."""
        names = list(self.values) + ["%s in the environment" % name for name in sorted(self.variables)]
        names += ["%s on sys.path" % path for path in self.paths]
        return names + ([] if self.streams is None else ["%s (state %s)" % (RANDOM_NUMBERS, self.streams.digest)])


def of_process(streams: bool = True) -> ProcessSettings:
    """Those of this process, the session's. streams: with its random numbers."""
    values = {}
    for setting in SETTINGS:
        module = sys.modules.get(setting.module)
        if module is not None:
            value = setting.read(module)
            if value != setting.default:
                values[setting.name] = value
    return ProcessSettings(
        values, _variables(), _paths(), _levels(), _filters(), random_streams.seeded() if streams else None
    )


def seed(limit: int) -> int | None:
    """A seed below `limit` that follows from this process' seeded random numbers; None where nothing is seeded."""
    streams = random_streams.seeded()
    return None if streams is None else int(streams.digest, 16) % limit


def floatx(source: str) -> str | None:
    """The floatx of the cell as far as the driver can know: what it sets itself, or the session has; None: neither."""
    keras = sys.modules.get("keras")
    session = None if keras is None else str(keras.backend.floatx())
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and len(node.args) == 1]
    in_cell = [
        call.args[0] for call in calls if getattr(call.func, "attr", getattr(call.func, "id", "")) == "set_floatx"
    ]
    literals = [node.value for node in in_cell if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return literals[-1] if literals else session


def _beginning() -> Dict[str, str] | None:
    """The environment with which this process began, or None where the system does not tell."""
    try:
        with open("/proc/self/environ", "rb") as file:
            return dict(os.fsdecode(pair).partition("=")[::2] for pair in file.read().split(b"\0") if pair)
    except OSError:
        return None


def _variables() -> Dict[str, str]:
    """The variables that were set since the process began."""
    beginning = _beginning()
    changed = [] if beginning is None else [name for name in os.environ if beginning.get(name) != os.environ[name]]
    return {name: os.environ[name] for name in changed if not name.startswith(_OF_PROCESSES)}


#: How the folder begins in which each Spark of this process keeps files for its executors, and puts on the path itself.
_OF_SPARK = "userFiles-"


def _paths() -> List[str]:
    """Folders that the session has put on its path. That of its script is the working folder, which a rank has."""
    beginning = (_beginning() or {}).get("PYTHONPATH", "").split(os.pathsep)
    beginning += ["", os.getcwd(), *_linked_paths()]
    return [
        path
        for path in sys.path
        if path not in beginning
        and not any(part in path for part in _INSTALLED)
        and not os.path.basename(path).startswith(_OF_SPARK)
    ]


def _linked_paths() -> Iterator[str]:
    """The folders that `.pth` files beside the installed packages put on every process's path."""
    for folder in site.getsitepackages():
        for file in glob.glob(os.path.join(glob.escape(folder), "*.pth")):
            with contextlib.suppress(OSError, UnicodeDecodeError), open(file) as lines:
                yield from (line.strip() for line in lines)


def _levels() -> Dict[str, int]:
    loggers = {name: logger for name, logger in logging.root.manager.loggerDict.items() if hasattr(logger, "level")}
    levels = {name: logger.level for name, logger in loggers.items() if not name.startswith(_OF_KERNELS)}
    return {"": logging.root.level, **{name: level for name, level in levels.items() if level}}


def _filters() -> List[Tuple[Any, ...]]:
    """Those of Python's own kinds of warnings: a rank may not have the package of another one."""
    return [entry for entry in warnings.filters if getattr(entry[2], "__module__", "") == "builtins"]


def apply(settings: ProcessSettings) -> None:
    """On a rank: take all over but the random numbers."""
    os.environ.update(settings.variables)
    sys.path[1:1] = [path for path in settings.paths if path not in sys.path]
    for entry in reversed(settings.filters):
        if entry not in warnings.filters:
            warnings.filters.insert(0, entry)  # type: ignore[attr-defined]
    for name, level in settings.levels.items():
        logging.getLogger(name).setLevel(level)
    for setting in SETTINGS:
        if setting.name in settings.values:
            setting.write(__import__(setting.module, fromlist=["_"]), settings.values[setting.name])


def registered() -> Iterator[Tuple[str, Any]]:
    """(name, object) of what the session's own cells have registered with Keras: other objects, packages register."""
    keras = sys.modules.get("keras")
    for name, value in keras.utils.get_custom_objects().items() if keras is not None else ():
        if getattr(value, "__module__", "") == "__main__":
            yield name, value


def register(name: str, value: Any) -> None:
    """On a rank. A name of `register_keras_serializable` has its package before a ">"."""
    import keras

    package, separator, own_name = name.partition(">")
    if separator:
        keras.utils.register_keras_serializable(package, own_name)(value)
    else:
        keras.utils.get_custom_objects()[name] = value
