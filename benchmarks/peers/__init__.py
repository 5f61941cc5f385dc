"""hdcos beside CrypTen and SPU: the same work in alternating turns on one machine, each result checked.

`make peers` does all of it. Module by module:

worker          how a worker talks to the driver: JSON jobs in, JSON answers out, bytes as the kernel counts them
hdcos_worker    hdcos: the caller of `hdcos.local()`
crypten_worker  CrypTen: a party or the trusted third party, run by CrypTen's own interpreter
spu_worker      SPU: a party, run by SPU's own interpreter
work            what is computed, its inputs and what plaintext says of the results
report          the table and the plot
__main__        the driver: environments, processes, turns, results

Workers import nothing of this package but `worker`, which needs the standard library alone.
"""
