"""How a command ends that does not succeed: the one place where errors become a line on stderr and an exit code.

1     an error of hdcos (its name and message) or of the operating system (the file, what is wrong, what to do)
2     the command was called in a way that it does not know: click says how it is called
130   Ctrl-C, with what to do next where a command has said so (`if_interrupted`)

Anything else is a mistake in hdcos: one line says what it was, and with HDCOS_DEBUG=1 every error keeps its trace.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn, TypeVar

import click

from hdcos.cluster.transport import RetryableError
from hdcos.errors import HdcosError

T = TypeVar("T")
DEBUG = "HDCOS_DEBUG"
INTERRUPTED = 130
_HINT = "hdcos.if_interrupted"
REMEDIES = {
    errno.ENOENT: "check the path; the folder of a new file must exist",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EISDIR: "name a file, not a folder",
    errno.EEXIST: "choose another name, or remove what is there first",
    errno.EACCES: "change its permissions, or choose another place",
    errno.EPERM: "change its permissions, or choose another place",
    errno.EROFS: "choose another place",
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EMFILE: "raise the limit of open files (`ulimit -n`)",
    errno.EADDRINUSE: "end the process that listens there, or choose another port",
}


def if_interrupted(advice: Callable[[], str]) -> None:
    """What to tell whoever presses Ctrl-C from now on."""
    click.get_current_context().meta[_HINT] = advice


def told_in_one_line(context: click.Context, work: Callable[[], T]) -> T:
    """Do the work of a command; whatever goes wrong ends the process with one line and an exit code."""
    try:
        result = work()
        sys.stdout.flush()  # a full disk is noticed here, not when nobody can be told any more
        return result
    except (click.exceptions.Exit, click.ClickException, click.Abort, SystemExit):
        raise
    except KeyboardInterrupt:
        _end(f"Interrupted. {context.meta.get(_HINT, str)()}", INTERRUPTED)
    except BrokenPipeError as error:
        if isinstance(error, HdcosError):
            _end(_told(error), 1)
        raise  # the reader has seen enough: click ends quietly
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        if isinstance(error, OSError) and error.filename is None and error.errno in (errno.ENOSPC, errno.EIO):
            _drop_output()
        _end(_told(error), 1)


def _told(error: Exception) -> str:
    if isinstance(error, RetryableError):
        error = error.error
    if isinstance(error, HdcosError):
        return f"{type(error).__name__}: {error}"
    if isinstance(error, OSError) and error.strerror:
        place = "the output" if error.filename is None else os.fsdecode(error.filename)
        remedy = REMEDIES.get(error.errno or 0, "")
        return f"Error: {place}: {error.strerror}" + (f" ({remedy})" if remedy else "")
    if isinstance(error, MemoryError):
        return f"Error: there is not enough memory: {error or 'use fewer rows or smaller batches'}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"Error: a mistake in hdcos, please report it: {type(error).__name__}: {error} at {last.filename}:{last.lineno}"
        f" ({DEBUG}=1 shows the trace)"
    )


def _end(text: str, code: int) -> NoReturn:
    click.echo(" ".join(text.split()), err=True)
    sys.exit(code)


def _drop_output() -> None:
    """What could not be written would be tried again, and fail again, when the process ends."""
    if sys.stdout is sys.__stdout__ and sys.__stdout__ is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())
