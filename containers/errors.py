"""The errors of the programs that run in containers, one class for each exit code. The messages are written where
they are raised: where, what, the value got, what is allowed, what to do next.
"""


class ContainerError(Exception):
    """A wrong setting, argument or input file."""

    exit_code = 2


class RowsUnaccounted(ContainerError):
    """Rows of a batch's input that are not in its output, or more rows than the input has."""

    exit_code = 1


class Unavailable(ContainerError):
    """A model, a device, a worker, a library or a storage that is not there or refuses."""

    exit_code = 3
