"""What callers and parties say to each other.

names    what things may be called
tokens   a client's secret, and what it shows to each party
tensors  binary tensors in HTTP bodies
cost     what a piece of work cost, read off the meters
settings what a run of training is
findings what a doctor finds wrong
"""
