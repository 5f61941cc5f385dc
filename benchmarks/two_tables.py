"""The tables suite, `make prove SUITE=tables`: two tables of two owners, from their files to predictions with ids."""

from __future__ import annotations

from benchmarks import tables_accuracy, tables_columns, tables_evaluate, tables_join, tables_owners, tables_suggest

PARTS = {
    **tables_join.PARTS,
    "columns": tables_columns.prove_columns,
    **tables_owners.PARTS,
    **tables_evaluate.PARTS,
    **tables_accuracy.PARTS,
    **tables_suggest.PARTS,
}
