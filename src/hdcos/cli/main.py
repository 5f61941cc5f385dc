"""`hdcos`: the group of commands, and the one place where errors become a line on stderr and an exit code.

1     an error of hdcos (its name and message) or of the operating system (the file, what is wrong, what to do)
2     the command was called in a way that it does not know: click says how it is called
130   Ctrl-C, with what to do next where a command has said so (`if_interrupted`)

Anything else is a mistake in hdcos: one line says what it was, and with HDCOS_DEBUG=1 every error keeps its trace.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NoReturn, TypeVar

import click

from hdcos._version import __version__
from hdcos.cli.common import HINT, INTERRUPTED, describe_kernels
from hdcos.errors import HdcosError, HdcosWarning, RateRaised

T = TypeVar("T")
DEBUG = "HDCOS_DEBUG"
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


SAID_HERE = {
    "share(model, calibrate=rows)": "`hdcos share-model --calibrate FILE`",
    "; interval= of a layer states it": "",
}
"""What warnings advise in Python, and what commands have for it."""
PLACES = {
    **{"columns": "columns", "prepare": "prepare"},
    **{"convert": "convert", "cost": "cost", "demo": "demo", "plan": "plan", "train": "train", "doctor": "doctor"},
    **{"predict": "predict", "evaluate": "evaluate", "suggest": "suggest"},
    **dict.fromkeys(["approve", "dealer", "init", "node", "party", "quota", "retry", "token", "workers"], "nodes"),
    **dict.fromkeys(["identity", "join"], "join"),
    **dict.fromkeys(["deal", "jobs", "models", "reveal", "share-model", "upload"], "remote"),
    **dict.fromkeys(["datasets", "forget"], "kept"),
}
"""Commands, and the modules they are in. A node that is started need not wait for what tables and charts import."""


class _Commands(click.Group):
    """Finds a command when it is called, and ends with one line, however it fails: errors were written to be read."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted({*PLACES, *self.commands})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name in PLACES and name not in self.commands:
            module = import_module(f"hdcos.cli.{PLACES[name]}")
            self.add_command(getattr(module, "tokens" if name == "token" else name.replace("-", "_")))
        return super().get_command(context, name)

    def invoke(self, context: click.Context) -> object:
        with warnings.catch_warnings():
            warnings.simplefilter("always", RateRaised)
            warnings.showwarning = _show_warning
            with _telling_of_waiting():
                return end_in_one_line(context, lambda: super(_Commands, self).invoke(context))


def _show_version(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"hdcos {__version__}, {describe_kernels()}")
        context.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show version and kernels.",
)
def main() -> None:
    """Train and serve neural networks on data that no single machine sees."""


class _Waiting(logging.Handler):
    """Tells each thing once: a command may wait for the same party many times."""

    def __init__(self) -> None:
        super().__init__()
        self._said = set[str]()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self._said:
            self._said.add(text)
            click.echo(f"{text} (Ctrl-C ends it)", err=True)


@contextmanager
def _telling_of_waiting() -> Iterator[None]:
    """What a client logs of parties that do not answer is said on stderr: nobody should wait without a word."""
    log, handler = logging.getLogger("hdcos.cluster"), _Waiting()
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    if issubclass(category, HdcosWarning | RateRaised):
        text = str(message)
        for python, here in SAID_HERE.items():
            text = text.replace(python, here)
        click.echo(f"{'Note' if category is RateRaised else category.__name__}: {text}", err=True)
    else:
        click.echo(warnings.formatwarning(message, category, filename, lineno, line), err=True, nl=False)


def end_in_one_line(context: click.Context, work: Callable[[], T]) -> T:
    """Do the work of a command; anything that goes wrong ends the process with one line and an exit code."""
    try:
        result = work()
        sys.stdout.flush()  # a full disk is noticed here, not when nobody can be told any more
        return result
    except (click.exceptions.Exit, click.ClickException, click.Abort, SystemExit):
        raise
    except KeyboardInterrupt:
        _end(f"Interrupted. {context.meta.get(HINT, str)()}", INTERRUPTED)
    except BrokenPipeError as error:
        if isinstance(error, HdcosError):
            _end(_describe(error), 1)
        raise  # the reader has seen enough: click ends quietly
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        if isinstance(error, OSError) and error.filename is None and error.errno in (errno.ENOSPC, errno.EIO):
            _drop_output()
        _end(_describe(error), 1)


def _describe(error: Exception) -> str:
    from hdcos.cluster.transport import RetryableError

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
