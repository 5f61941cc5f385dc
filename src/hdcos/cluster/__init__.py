"""The caller's end of two parties: `hdcos.local()` and `hdcos.connect()`.

transport       what is carried to both parties and back, and splitting it for them
link_transport  over links, to processes of this machine; link_jobs drives training there
pair            two workers, one of each party, and what they have open
listing         a data set by its name
pieces          rows on their way to the parties: from arrays, files and iterators, a piece at a time
https           one party elsewhere, asked over HTTPS
model, function what can be evaluated on shares; remote_function, one that is open elsewhere
fit, job        a run of training: what is checked of it, and how it is followed and shown
looking         how often, and at how many rows, so that the quota of the model is hardly touched
cluster         all of it: share, predict, upload, train
local, connect  where a Cluster comes from; connect carries over HTTPS
forgetting      what both parties are to forget, though one may be away
"""
