"""Beginnings of elements of the static block: their looks are attributes, and their content reads well without them."""

TABLE = '<table cellpadding="4" style="color:inherit;border-collapse:collapse;margin:6px 0;font-size:12px">'
PRE = '<pre style="white-space:pre-wrap;font-size:12px;max-height:300px;overflow:auto">'
