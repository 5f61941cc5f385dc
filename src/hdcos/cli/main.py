"""`hdcos`: the group of commands."""

from __future__ import annotations

import warnings
from typing import Any

import click

from hdcos._version import __version__
from hdcos.cli.cost import cost
from hdcos.cli.demo import demo
from hdcos.cli.failing import told_in_one_line
from hdcos.cli.nodes import approve, dealer, doctor, init, node, party, quota, retry, tokens
from hdcos.cli.remote import deal, jobs, models, predict, reveal, share_model, upload
from hdcos.cli.train import train
from hdcos.errors import HdcosWarning


class _Commands(click.Group):
    """Ends with one line, whatever goes wrong: errors and warnings were written to be read."""

    def invoke(self, context: click.Context) -> object:
        with warnings.catch_warnings():
            warnings.showwarning = _shown
            return told_in_one_line(context, lambda: super(_Commands, self).invoke(context))


def _shown(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    if issubclass(category, HdcosWarning):
        click.echo(f"{category.__name__}: {message}", err=True)
    else:
        click.echo(warnings.formatwarning(message, category, filename, lineno, line), err=True, nl=False)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hdcos")
def main() -> None:
    """Train and serve neural networks on data that no single machine sees."""


main.add_command(cost)
main.add_command(demo)
for command in (node, init, dealer, party, doctor, tokens, approve, quota, retry):
    main.add_command(command)
for command in (predict, share_model, upload, reveal, deal, models, jobs):
    main.add_command(command)
main.add_command(train)
