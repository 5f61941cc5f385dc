"""A party as a service: state on disk, sessions with the other party, an HTTPS interface for clients.

config    node.toml: what the operator of a node decides
tokens    who may ask for what
tensors   binary tensors in HTTP bodies
schema    the database and its versions
store     models, data sets, jobs and records on disk
desk      requests of clients, matched between the two parties and merged into batches
lane      a model's material, allotted row by row
worker    what both parties do, command by command
leader    what is to be done next: party 0 decides
session   one life of the links between the parties
service   sessions one after another, for as long as the process lives
app       the HTTPS interface
"""
