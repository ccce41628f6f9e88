"""The runs and the searches of a kernel: submitted, waited for, attached again."""
