"""The command line.

main        the group of commands
failing     how errors become one line and an exit code
cost        `hdcos cost activations`, and the way to
model_cost  `hdcos cost MODEL`
demo        `hdcos demo`
train       `hdcos train CONFIG.toml`
nodes       `hdcos node init`, `init`, `dealer`, `party`, `doctor`
"""

from hdcos.cli.main import main as main
