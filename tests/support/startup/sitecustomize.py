"""Read by each Python that tests start: large packages are imported without others that no test needs.

Keras and TensorFlow are imported without scikit-learn and pandas, which take two fifths of that import: Keras could
wrap models for the one, and `fit` take frames of the other; and without Matplotlib and IPython, which draw galleries.
jsonschema, which all of Jupyter imports, does without the grammar of international addresses, which takes a second. A
cell that imports them itself gets them.

An import makes next to no garbage: without the search for it, that of Keras takes a quarter less
(runtime/executor/loading.py does so for ranks, and this for kernels).
"""

import gc
import sys
from importlib.machinery import PathFinder, SourceFileLoader

#: Package -> whose import does without it.
_LEFT_OUT = {
    "sklearn": ("keras", "tensorflow"),
    "pandas": ("keras", "tensorflow"),
    "matplotlib": ("keras",),
    "IPython": ("keras",),
    "rfc3987_syntax": ("jsonschema",),
}

#: Packages whose import makes many objects.
_LARGE = ("keras", "tensorflow")


def _is_being_imported(name):
    return getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False)


class _LeaveOut:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if any(map(_is_being_imported, _LEFT_OUT.get(name, ()))):
            raise ModuleNotFoundError(f"{name} is left out of this import in tests", name=name)


class _Uncollected(SourceFileLoader):
    def exec_module(self, module):
        collects = gc.isenabled()
        gc.disable()
        try:
            super().exec_module(module)
        finally:
            if collects:
                gc.enable()


class _ImportUncollected:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in _LARGE:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Uncollected(spec.loader.name, spec.loader.path)
        return spec


sys.meta_path[:0] = [_LeaveOut, _ImportUncollected]
