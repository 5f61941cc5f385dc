"""The rows that two owners share, found by their ids without showing the others: private set intersection.

Modules, each using only those before it:

ids         the id columns of a file as digests of 16 bytes, and what to do with ids that are empty or come twice
reference   the hot loops in NumPy and `cryptography`: the specification of those that are compiled
oprf        an oblivious pseudorandom function from oblivious transfers
matching    both owners' conversation: which of their ids are the same, and in which order
rows        the file that a join leaves with each owner, and the rows of a table in its order
meeting     how the owners reach each other: directly, or through a party that sees sealed messages alone
files       from two files to two joined-rows files, written by both owners or by none

Security  both owners learn the ids they share and, rounded up, how many ids the other has, and nothing else;
          semi-honest owners. A party that serves as meeting point learns who met, when, and these rounded numbers.
"""
