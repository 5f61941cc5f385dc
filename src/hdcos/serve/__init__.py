"""Nodes and clusters: the processes that hold shares, and the caller's end of them.

cost    what a piece of work cost, read off the meters
node    a process: reads its configuration, makes its links, serves
party   what a party does with requests
local   three processes on this machine, and the Cluster that talks to them
"""
