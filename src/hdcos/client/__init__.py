"""A cluster over HTTPS: `hdcos.connect`. Needs NumPy and urllib3, nothing else.

tokens    a client's secret, and what it shows to each party
names     what things may be called
tensors   binary tensors in HTTP bodies
parties   both parties at once: requests, answers, errors
cost      what work cost at both parties
cluster   the interface of `hdcos.local()`, remote
model     a shared model: predictions, material, reveal
training  data sets and jobs
"""

from hdcos.client.cluster import connect as connect
