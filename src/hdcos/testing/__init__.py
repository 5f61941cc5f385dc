"""Simulations for tests, measurements and planning: no secrets, no network. Nothing else in the package uses them.

pair         both parties and the dealer in one thread
networks     a whole network on shares in one process
plaintext    a protocol with one party that holds every value
ot_pair      both parties of oblivious transfer in one thread
memory_link  two links joined in memory
bounds       how far private outputs may lie from the float network's
"""
