"""`hdcos`: the group of commands."""

from __future__ import annotations

import sys

import click

from hdcos._version import __version__
from hdcos.cli.cost import cost
from hdcos.cli.demo import demo
from hdcos.cli.nodes import approve, dealer, doctor, init, node, party, quota, retry, tokens
from hdcos.cli.paper import paper
from hdcos.cli.remote import deal, jobs, models, predict, reveal, share_model, upload
from hdcos.cli.train import train
from hdcos.errors import HdcosError


class _Commands(click.Group):
    """Shows an error of ours as its name and message, without a trace: it was written to be read."""

    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except HdcosError as error:
            click.echo(f"{type(error).__name__}: {error}", err=True)
            sys.exit(1)


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
main.add_command(paper)
