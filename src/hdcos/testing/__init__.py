"""Simulations for tests, measurements and planning: no secrets, no network. Nothing else in the package uses them.

pair       both parties in one process: protocols and whole networks in one thread, links in memory
plaintext  a protocol with one party that holds every value
ot_pair    both parties of oblivious transfer in one thread
steps      steps of training, hashed: on processors, on a device, or on one of each
cuda_cases calls of every kernel of a CUDA device, against the reference
emulated_cupy  stands in for CuPy where there is no device; cuda_emulation.h runs kernels for it
bounds     how far private outputs may lie from the float network's
"""
