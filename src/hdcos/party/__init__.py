"""One party: it holds shares, spends material, talks to its peer and answers callers.

node        a process: reads its configuration, makes its links, serves
engine      a party's link to its peer, its material, and programs run with both
operations  what a party does for the one caller of `hdcos.local()`
worker      what both parties of a service do, command by command
scheduler   what is to be done next: party 0 decides
batcher     requests of clients, matched between the two parties and merged into batches
allotment   a model's material, allotted row by row
session     one life of the links between the parties
service     sessions one after another, for as long as the process lives
store       models, data sets, jobs and records on disk
logs        what a node writes to stderr
http        the HTTPS interface, which needs the extra hdcos[server]
"""
