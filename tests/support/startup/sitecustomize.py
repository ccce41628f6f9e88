"""Read by each Python that tests start: large packages are imported without others that no test needs.

Keras and TensorFlow are imported without scikit-learn and pandas, which take two fifths of that import: Keras could
wrap models for the one, and `fit` take frames of the other. jsonschema, which all of Jupyter imports, does without the
grammar of international addresses, which takes a second. A cell that imports them itself gets them.
"""

import sys

#: Package -> whose import does without it.
_LEFT_OUT = {
    "sklearn": ("keras", "tensorflow"),
    "pandas": ("keras", "tensorflow"),
    "rfc3987_syntax": ("jsonschema",),
}


def _is_being_imported(name):
    return getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False)


class _LeaveOut:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if any(map(_is_being_imported, _LEFT_OUT.get(name, ()))):
            raise ModuleNotFoundError(f"{name} is left out of this import in tests", name=name)


sys.meta_path.insert(0, _LeaveOut)
