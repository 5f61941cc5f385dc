"""`python -m hdcos`: the same as the command `hdcos`."""

from hdcos.cli import main

main(prog_name="hdcos")
