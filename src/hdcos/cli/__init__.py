"""The command line.

main        the group of commands and how errors are shown
cost        `hdcos cost activations`, and the way to
model_cost  `hdcos cost MODEL`
demo        `hdcos demo`
"""

from hdcos.cli.main import main as main
