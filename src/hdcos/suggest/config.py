"""What was found as a configuration that `hdcos train` runs as it is, with what to expect of it in comments."""

from __future__ import annotations

from hdcos.secure.training.step import plan_step
from hdcos.suggest.search import Suggestion
from hdcos.suggest.sources import DataSets, FileSource, text


def render(suggestion: Suggestion, source: FileSource | DataSets) -> str:
    """The text of the configuration."""
    tried, best, rows = suggestion.chosen.candidate, suggestion.results[0], source.rows
    chosen = suggestion.settings(rows)
    steps = chosen.epochs * (rows // chosen.batch_size)
    known = (chosen.batch_size, chosen.loss, chosen.lr, chosen.momentum, chosen.weight_decay)
    planned = plan_step(chosen.network(), *known)
    price, megabytes = chosen.price, 1e-6 * steps
    lines = [
        f"# Suggested by `hdcos suggest`: {chosen.kind}, the best of {suggestion.tried} settings.",
        f"# Expected {_expected(suggestion)}",
        f"# by {suggestion.folds}-fold cross-validation in plaintext on {suggestion.rows:,} rows.",
        *source.notes(tried, chosen),
    ]
    if best is not suggestion.chosen:
        better = f"{best.score:.4g}" if suggestion.regression else f"{best.score:.2%}"
        lines.append(f"# As good as the best, {best.candidate.kind} ({better}), within its error, and cheaper.")
    if suggestion.skipped:
        lines.append(f"# There was no time for {suggestion.skipped} settings more: --budget-s gives it.")
    lines += [
        "#",
        f"# On shares, a private prediction takes {price.online.rounds} rounds, {price.online.bytes_sent:,} bytes each "
        f"way and {price.offline.bytes_sent:,} of material;",
        f"# training on {rows:,} rows {steps:,} steps: {steps * planned.rounds:,} rounds, "
        f"{megabytes * planned.online_bytes:,.1f} MB each way and "
        f"{megabytes * sum(planned.material.packed_bytes(1, rank) for rank in (0, 1)):,.1f} MB of material.",
        "",
        *source.data(chosen),
        "",
        "[model]",
        f"sizes = {list(chosen.sizes)}",
        f"structure = {text(chosen.structure)}",
        f"seed = {suggestion.seed}",
        "",
        "[training]",
        f"epochs = {chosen.epochs}",
        f"batch_size = {chosen.batch_size}",
        f"lr = {chosen.lr}",
        f"momentum = {chosen.momentum}",
        f"weight_decay = {chosen.weight_decay}",
        *([f"average = {chosen.average}"] if chosen.average else []),
        f"loss = {text(chosen.loss)}",
        f"seed = {suggestion.seed}",
        "",
        "[output]",
        source.output,
        "",
    ]
    return "\n".join(lines)


def _expected(suggestion: Suggestion) -> str:
    result = suggestion.chosen
    if suggestion.regression:
        return f"root mean squared error: {result.score:.4g}, standard error {result.error:.2g},"
    return f"accuracy: {result.score:.2%}, standard error {100 * result.error:.2f} points,"
