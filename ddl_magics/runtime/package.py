"""A package of Python files as a zip: how the runtime is sent to a session, and from there to the executors."""

import io
import os
import zipfile

#: The oldest time that a zip can hold: with it, equal sources make equal bytes.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def sources(folder):
    """{path within the folder: bytes} of its Python files, sorted; compiled ones are left out."""
    found = {}
    for at, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(at, name)
            if name.endswith(".py") and "__pycache__" not in path:
                with open(path, "rb") as file:
                    found[os.path.relpath(path, folder).replace(os.sep, "/")] = file.read()
    return dict(sorted(found.items()))


def zipped(name, files):
    """The bytes of a zip of `files`, as `sources` gives them, in a folder `name`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            info = zipfile.ZipInfo("%s/%s" % (name, path), _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, data)
    return buffer.getvalue()
