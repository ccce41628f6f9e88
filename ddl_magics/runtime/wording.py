"""How numbers of things are said."""


def count(number, what):
    """ "1 worker", "2 workers"."""
    return "%d %s%s" % (number, what, "" if number == 1 else "s")
