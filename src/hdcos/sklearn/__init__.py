"""scikit-learn's habits on shares: `PrivateClassifier` and `PrivateRegressor` for pipelines and cross-validation.

estimators  fit, predict, predict_proba, score, reveal
defaults    network, batches, epochs and rates, from sizes that are public anyway
clusters    the connections of this process; an estimator holds the name of its model, never a connection
checks      what scikit-learn's own checks expect and answers with noise cannot give
"""

try:
    from sklearn.utils.validation import validate_data as _validate_data  # noqa: F401  since 1.6
except ImportError as error:
    raise ImportError("hdcos.sklearn needs scikit-learn 1.6 or later: pip install 'hdcos[sklearn]'") from error

from hdcos.sklearn.clusters import close as close
from hdcos.sklearn.estimators import PrivateClassifier as PrivateClassifier
from hdcos.sklearn.estimators import PrivateRegressor as PrivateRegressor

__all__ = ["PrivateClassifier", "PrivateRegressor", "close"]
