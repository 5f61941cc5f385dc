"""What callers and parties say to each other.

tokens   a client's secret, and what it shows to each party
bodies   what HTTP bodies hold: JSON, what is wrong with it in words, binary tensors
requests what a client may send over HTTPS, with its limits; the settings of a run of training
answers  what a party answers over HTTPS
quota    how many rows of a model are answered
cost     what a piece of work cost, read off the meters
commands what a party's worker is told to do
process  the process of a node or a worker: started, told who it is, ended
"""
