"""Of scikit-learn's checks (`check_estimator`), those that these estimators fail, and why.

Two runs of training on shares round differently, without bias, because shares are split freshly; and every answer
carries fresh noise, without which a party that is also a client could learn of the other's shares (docs/security.md).
Both are of the size of a thousandth; most of the checks below want the same numbers to seven digits.
"""

from __future__ import annotations

NOISE = "every answer carries fresh noise of about a thousandth, and the check compares two answers to seven digits"
TIES = "every answer carries fresh noise of about a thousandth, so rows closer than that are not always in one order"
RUNS = "two runs on shares round differently, without bias, and the check compares them to seven digits"
LARGE = "two runs on shares round differently, and the check compares targets of about a hundred to a hundredth"
BATCHES = (
    "a step takes a batch of rows, whatever they weigh: rows that come twice, or not at all, make other batches than "
    "rows of weight two or zero, as in scikit-learn's own stochastic gradient descent"
)

EXPECTED_FAILED_CHECKS: dict[str, str] = {
    "check_fit_idempotent": RUNS,
    "check_regressor_data_not_an_array": LARGE,
    "check_estimators_pickle": NOISE,
    "check_decision_proba_consistency": TIES,
    "check_supervised_y_2d": RUNS,
    "check_sample_weight_equivalence_on_dense_data": BATCHES,
}
"""Passed to `check_estimator(expected_failed_checks=...)`."""
