"""`hdcos`: the group of commands."""

from __future__ import annotations

import click

from hdcos._version import __version__
from hdcos.cli.cost import cost
from hdcos.cli.demo import demo
from hdcos.cli.failing import told_in_one_line
from hdcos.cli.nodes import approve, dealer, doctor, init, node, party, tokens
from hdcos.cli.paper import paper
from hdcos.cli.remote import deal, jobs, models, predict, reveal, share_model, upload
from hdcos.cli.train import train


class _Commands(click.Group):
    """Ends with one line, whatever goes wrong: errors were written to be read."""

    def invoke(self, context: click.Context) -> object:
        return told_in_one_line(context, lambda: super(_Commands, self).invoke(context))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hdcos")
def main() -> None:
    """Train and serve neural networks on data that no single machine sees."""


main.add_command(cost)
main.add_command(demo)
for command in (node, init, dealer, party, doctor, tokens, approve):
    main.add_command(command)
for command in (predict, share_model, upload, reveal, deal, models, jobs):
    main.add_command(command)
main.add_command(train)
main.add_command(paper)
