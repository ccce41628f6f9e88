"""Tables of pandas as values that travel: a column is an array, with the name of its dtype where NumPy has none.

frame    {"columns": index, "data": [column, ...], "index": index}
series   {"name": value, "data": column, "index": index}
index    {"index": index}
an index is [kind, name or names, content]: "range" with [start, stop, step], "flat" with a column,
"multi" with a list of tuples
a column is [dtype or null, values]; of a categorical, ["category", [codes, categories, ordered]]
"""

from __future__ import annotations

import re
from typing import Any, Callable

#: Extension types of pandas whose values are texts, numbers and missing values.
EXTENSION = re.compile(r"U?Int(8|16|32|64)|Float(32|64)|boolean|string")

Encode = Callable[[Any], Any]
Decode = Callable[[Any], Any]


class Unknown(Exception):
    """A table that has no such form; the message follows a name."""


def encode(value: Any, encode_value: Encode) -> Any:
    """{kind: content} of a DataFrame, a Series or an Index. Raises Unknown for another object of pandas."""
    import pandas as pd

    if type(value) is pd.DataFrame:
        data = [_column(value.iloc[:, number], encode_value) for number in range(value.shape[1])]
        columns, index = _index(value.columns, encode_value), _index(value.index, encode_value)
        return {"frame": {"columns": columns, "data": data, "index": index}}
    if type(value) is pd.Series:
        name, data = encode_value(value.name), _column(value, encode_value)
        return {"series": {"name": name, "data": data, "index": _index(value.index, encode_value)}}
    if isinstance(value, pd.Index):
        return {"index": _index(value, encode_value)}
    raise Unknown("a %s of pandas" % type(value).__name__)


def _column(series: Any, encode_value: Encode) -> Any:
    import pandas as pd

    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        codes = encode_value(series.cat.codes.to_numpy())
        return ["category", [codes, _index(dtype.categories, encode_value), bool(dtype.ordered)]]
    if isinstance(dtype, pd.api.extensions.ExtensionDtype):
        if not EXTENSION.fullmatch(str(dtype)):
            raise Unknown("a column of dtype %s" % dtype)
        values = [None if value is pd.NA else value for value in series.tolist()]
        return [str(dtype), encode_value(values)]
    return [None, encode_value(series.to_numpy())]


def _index(index: Any, encode_value: Encode) -> Any:
    import pandas as pd

    if isinstance(index, pd.RangeIndex):
        return ["range", encode_value(index.name), [index.start, index.stop, index.step]]
    if isinstance(index, pd.MultiIndex):
        return ["multi", encode_value(list(index.names)), encode_value(index.tolist())]
    return ["flat", encode_value(index.name), _column(index.to_series(), encode_value)]


def decode(kind: str, content: Any, decode_value: Decode) -> Any:
    """The table. ValueError, KeyError or TypeError where the content is none."""
    import pandas as pd

    if kind == "index":
        return _decoded_index(content, decode_value)
    index = _decoded_index(content["index"], decode_value)
    if kind == "series":
        return pd.Series(_decoded_column(content["data"], decode_value), index, name=decode_value(content["name"]))
    columns = _decoded_index(content["columns"], decode_value)
    data = {number: _decoded_column(column, decode_value) for number, column in enumerate(content["data"])}
    frame = pd.DataFrame(data, index)
    frame.columns = columns
    return frame


def _decoded_column(encoded: Any, decode_value: Decode) -> Any:
    import numpy as np
    import pandas as pd

    dtype, values = encoded
    if dtype == "category":
        codes, categories, ordered = values
        labels = _decoded_index(categories, decode_value)
        return pd.Categorical.from_codes(decode_value(codes), labels, ordered=bool(ordered))
    decoded = decode_value(values)
    if dtype is not None:
        if not EXTENSION.fullmatch(dtype):
            raise ValueError("a column of dtype %.40r" % dtype)
        return pd.array(decoded, dtype=dtype)
    if not isinstance(decoded, np.ndarray) or decoded.ndim != 1:
        raise ValueError("a column is no array")
    return decoded


def _decoded_index(encoded: Any, decode_value: Decode) -> Any:
    import pandas as pd

    kind, name, content = encoded
    if kind == "range":
        start, stop, step = map(int, content)
        return pd.RangeIndex(start, stop, step, name=decode_value(name))
    if kind == "multi":
        return pd.MultiIndex.from_tuples(decode_value(content), names=decode_value(name))
    if kind == "flat":
        return pd.Index(_decoded_column(content, decode_value), name=decode_value(name))
    raise ValueError("an index of kind %.40r" % kind)
