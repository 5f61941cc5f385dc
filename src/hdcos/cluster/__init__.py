"""The caller's end of two parties: `hdcos.local()` and `hdcos.connect()`.

transport        what is carried to both parties and back
link_transport   over links, to processes of this machine; link_jobs drives training there
https_transport  over HTTPS, to parties elsewhere; https asks both at once
shares           splitting secrets for two parties
model, function  what can be evaluated on shares
fit, job         a run of training: what is checked of it, and how it is followed; progress shows it
cluster          all of it: share, predict, upload, train
local, connect   where a Cluster comes from
doctor           what is wrong with a cluster, seen by a client
"""
