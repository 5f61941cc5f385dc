"""The command line.

main   the group of commands and how errors are shown
cost   `hdcos cost activations`
"""

from hdcos.cli.main import main as main
