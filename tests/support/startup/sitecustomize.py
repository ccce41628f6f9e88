"""Read by each Python that tests start: Keras and TensorFlow are imported without scikit-learn and pandas.

These take two fifths of that import. Keras could wrap models for the one, and `fit` take frames of the other, which no
test does. A cell that imports them itself gets them.
"""

import sys

_LEFT_OUT = ("sklearn", "pandas")
_IMPORTERS = ("keras", "tensorflow")


def _is_being_imported(name):
    return getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False)


class _LeaveOut:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in _LEFT_OUT and any(map(_is_being_imported, _IMPORTERS)):
            raise ModuleNotFoundError(f"{name} is left out of the import of Keras in tests", name=name)


sys.meta_path.insert(0, _LeaveOut)
