"""What callers and parties say to each other.

names    what things may be called
tokens   a client's secret, and what it shows to each party
schema   JSON read by its type, and what is wrong with it in words
requests what a client may send over HTTPS, with its limits
answers  what a party answers over HTTPS
tensors  binary tensors in HTTP bodies
cost     what a piece of work cost, read off the meters
commands what a party's worker is told to do
findings what a doctor finds wrong
"""
