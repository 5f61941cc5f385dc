"""The command line.

main      the group of commands, and how errors become one line and an exit code
common    what commands share
cost      `hdcos cost`: of activations, models and training
networks  the table of `hdcos cost networks`
plan      `hdcos plan`: what a load needs of each organisation
demo      `hdcos demo`
train     `hdcos train CONFIG.toml`
remote    what clients of a cluster do: predict, share models, upload, reveal
kept      what the parties keep for clients: list it, forget it
nodes     what operators do: make nodes, run them, let clients in
doctor    `hdcos doctor`: what is wrong with a cluster
"""

from hdcos.cli.main import main as main
