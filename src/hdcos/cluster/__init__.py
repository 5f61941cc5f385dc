"""The caller's end of two parties: `hdcos.local()` and `hdcos.connect()`.

local    three processes on this machine, and the Cluster that talks to them
remote   a cluster over HTTPS
shares   splitting secrets for two parties
https    both parties at once: requests, answers, errors
"""
