"""`PrivateClassifier` and `PrivateRegressor`: networks that are trained on shares, with the interface of scikit-learn.

    model = make_pipeline(OneHotEncoder(), PrivateClassifier())
    cross_val_score(model, x, y)

    PrivateClassifier(cluster="cluster.toml").fit(("bank", "shop"))  # columns of two owners, uploaded by them

With `hidden=()` they are logistic and linear regression: one layer, whose coefficients `reveal()` gives, in the units
of the table, if both parties agree.

Security  each party sees sizes (rows, features, classes) and settings, which follow from sizes unless they are given,
          and uniform shares of everything else. Means, scales, names of columns and names of classes stay with the
          caller, who prepares the rows before they are split. Owners that upload their rows themselves show them to
          nobody; the caller then learns what the model answers. Weights are joined by `reveal()` alone, with both
          parties' approval. Nothing is opened here that `Cluster` does not open.
"""

from __future__ import annotations

import secrets
from typing import Any, Self
from weakref import finalize

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from hdcos.checks import check_whole
from hdcos.cluster.cluster import Cluster
from hdcos.cluster.listing import find_set
from hdcos.cluster.looking import look_once
from hdcos.cluster.model import PrivateModel
from hdcos.errors import DataMissing, InputError, RangeError
from hdcos.nn import Network
from hdcos.ring import Array
from hdcos.secure import compile_network
from hdcos.secure.labels import probabilities
from hdcos.secure.training.targets import one_hot
from hdcos.secure.training.watch import SAMPLE, Watch, mean_loss
from hdcos.sklearn import defaults
from hdcos.sklearn.clusters import find_cluster, start_cluster, unwanted_models
from hdcos.sklearn.defaults import AUTO, Sizes

LOGISTIC, SQUARED = "logistic", "squared"
WORSE = 1.1
"""A model whose loss is this many times that of guessing has not learnt, but diverged."""
FITTED = ("_deletion", "_gain", "_linear", "_coefficients", "_mean", "_scale")
"""Besides those that end in an underscore, what `fit` makes of an estimator."""


class PrivateEstimator(BaseEstimator):
    """What classifier and regressor have in common.

    Parameters
    ----------
    hidden : widths of the hidden layers; () for a linear model. "auto" chooses by the number of rows.
    activation, structure : of the hidden layers, as in `hdcos.nn.models.mlp`.
    alpha : the penalty on weights, as in Ridge; LogisticRegression calls its inverse C.
    epochs, batch_size, lr, momentum : of training; "auto" follows from sizes (`hdcos.sklearn.defaults`).
    clip : features are standardised, and cut off at this many standard deviations.
    cluster : a cluster file, or a cluster of `hdcos.local()` or `hdcos.connect()`. None: one on this machine, which all
        estimators of this process share.
    name : what the parties call the model. Without a name the model is deleted when nothing refers to it any more.
    random_state : of initial weights and of the order of rows. Answers carry noise whatever it is.

    Attributes
    ----------
    model_name_ : what the parties call the model.
    loss_ : of a sample of the training rows, from private predictions after training; None for data sets of others, and
        where all targets are the same.
    cost_ : rounds, bytes and seconds of training.
    n_iter_ : epochs.
    n_features_in_, feature_names_in_ : as usual.
    """

    def __init__(
        self,
        hidden: Any = AUTO,
        *,
        activation: str = "cos",
        structure: str = "dense",
        alpha: float = 1.0,
        epochs: int | str = AUTO,
        batch_size: int | str = AUTO,
        lr: Any = AUTO,
        momentum: float = 0.9,
        clip: float = 8.0,
        cluster: Any = None,
        name: str | None = None,
        random_state: Any = None,
    ) -> None:
        self.hidden = hidden
        self.activation = activation
        self.structure = structure
        self.alpha = alpha
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.momentum = momentum
        self.clip = clip
        self.cluster = cluster
        self.name = name
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # rounding and noise: see `checks`
        return tags

    def __getstate__(self) -> Any:
        """Names and numbers. What is copied may outlive this estimator, so its model stays."""
        if isinstance(self.cluster, Cluster):
            raise InputError("a connection cannot be copied or pickled: pass the cluster file, cluster='cluster.toml'")
        state = dict(super().__getstate__())
        kept = state.pop("_deletion", None)
        if kept is not None:
            kept.detach()
        return state

    # ---- training

    def _fit_rows(self, x: Array, y: Array, outputs: int, loss: str, sample_weight: Any) -> Self:
        """Train on rows of the caller's own."""
        sizes = Sizes(len(x), x.shape[1], outputs)
        hidden = self._hidden_widths(sizes)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, x, ensure_non_negative=True)
        self.scaler_ = StandardScaler().fit(x)
        self._gain = 1.0 if hidden else defaults.GAIN
        return self._train(self._prepare(x), y, sizes, hidden, loss, weights)

    def _train(
        self,
        x: Any,
        y: Array | None,
        sizes: Sizes,
        hidden: tuple[int, ...],
        loss: str,
        weights: Array | None = None,
    ) -> Self:
        """Train on rows of the caller's own, or on data sets that are named."""
        cluster = start_cluster(self.cluster)
        batch = defaults.choose_batch(sizes) if _is_auto(self.batch_size) else self.batch_size
        batch = check_whole(batch, "batch_size")
        epochs = defaults.choose_epochs(sizes, batch, hidden) if _is_auto(self.epochs) else self.epochs
        epochs = check_whole(epochs, "epochs")
        rate = defaults.choose_rate(sizes, hidden, loss) if _is_auto(self.lr) else self.lr
        seed = int(check_random_state(self.random_state).randint(2**31))
        network = defaults.build_network(sizes, hidden, self.activation, self.structure, seed)
        private = cluster.fit(
            network,
            x,
            y,
            loss=loss,
            epochs=epochs,
            batch_size=batch,
            lr=rate / self._gain**2,
            momentum=self.momentum,
            weight_decay=self.alpha / sizes.rows * self._gain**2,
            schedule=defaults.falling_rate(epochs),
            warm_up=epochs // 20,
            watch=0,
            seed=seed,
            sample_weight=weights,
            name=self.name or f"sklearn-{secrets.token_hex(8)}",
            progress=False,
        )
        unwanted = unwanted_models(cluster)
        try:
            chosen = compile_network(network, cluster.phase_bits, cluster.has_dealer)
            most = look_once(cluster.transport, private.name, chosen, SAMPLE)
            loss_now = None if y is None else _loss_of(network, private, x, y, loss, epochs, most)
        except RangeError:
            unwanted.append(private.name)
            raise
        self._forget()
        self._deletion = None if self.name else finalize(self, unwanted.append, private.name)
        if self._deletion is not None:
            self._deletion.atexit = False  # nobody can be asked any more then
        self.model_name_, self.cost_, self.n_iter_, self.loss_ = private.name, private.cost, epochs, loss_now
        self._linear = not hidden
        self._coefficients: tuple[Array, Any] | None = None
        return self

    def _hidden_widths(self, sizes: Sizes) -> tuple[int, ...]:
        if _is_auto(self.hidden):
            return defaults.choose_hidden(sizes)
        if isinstance(self.hidden, list | tuple):
            return tuple(check_whole(width, "the width of a hidden layer") for width in self.hidden)
        raise InputError(f"`hidden` is a tuple of widths, () for a linear model, or 'auto', not {self.hidden!r}")

    def _fit_named(self, names: str | list[str] | tuple[str, ...], y: Any, loss: str, sample_weight: Any) -> int:
        """Train on data sets that their owners uploaded, prepared by them; returns the number of outputs."""
        if y is not None:
            raise InputError("labels of uploaded data sets were uploaded with them: leave y out")
        if sample_weight is not None:
            raise InputError("rows of uploaded data sets are weighed by their owners: leave sample_weight out")
        wanted, listed = [names] if isinstance(names, str) else list(names), start_cluster(self.cluster).datasets()
        records, beside = [find_set(name, listed) for name in wanted], isinstance(names, tuple)
        rows, features = ([record[key] for record in records] for key in ("rows", "features"))
        outputs = max(record["outputs"] for record in records)
        if not outputs:
            raise InputError(f"none of {wanted} has labels: one owner uploads them along with its rows")
        if loss == SQUARED and outputs > 1:
            raise InputError(f"a regression has one number for each row, the labels of {wanted} are {outputs} classes")
        sizes = Sizes(rows[0] if beside else sum(rows), sum(features) if beside else features[0], outputs)
        self.scaler_, self._gain = None, 1.0
        self._train(names, None, sizes, self._hidden_widths(sizes), loss)
        self.n_features_in_ = sizes.features
        columns = self._private().feature_names
        if columns is not None:
            self.feature_names_in_ = np.array(columns, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return int(outputs)

    def _prepare(self, x: Array) -> Array:
        """Rows as the network takes them. Rows of owners that uploaded theirs are prepared as these were."""
        return x if self.scaler_ is None else self._gain * np.clip(self.scaler_.transform(x), -self.clip, self.clip)

    # ---- what was learnt

    def _private(self) -> PrivateModel:
        cluster = find_cluster(self.cluster)
        try:
            return cluster.model(self.model_name_)
        except DataMissing as error:
            raise DataMissing(f"{error}: it was deleted, or trained by parties that have ended. Fit again") from error

    def _logits(self, X: Any) -> Array:
        check_is_fitted(self)
        x = validate_data(self, X, reset=False, dtype=np.float64)
        return self._private().predict(self._prepare(x))

    def predict_frame(self, X: Any) -> Any:
        """Predictions as a pandas DataFrame whose rows are named as those of `X` are, by its index."""
        from pandas import DataFrame  # nobody else needs it

        return DataFrame(self._columns(X), index=getattr(X, "index", None))

    def _columns(self, X: Any) -> dict[str, Array]:
        raise NotImplementedError

    def reveal(self, wait_s: float = 5.0, request: str | None = None) -> Network:
        """The network itself, if both parties approve; of a linear model `coef_` and `intercept_` are known then."""
        check_is_fitted(self)
        network = self._private().reveal(wait_s, request)
        if self._linear:
            state = network.state()
            self._coefficients = self._in_units(state["0.weight"], state["0.bias"])
        return network

    def _in_units(self, weight: Array, bias: Array) -> tuple[Array, Array]:
        """Coefficients and intercepts for rows as they were passed: (x - mean) / scale is w x / scale - w mean / scale.

        Beyond `clip` standard deviations the model is constant, which no coefficient says.
        """
        if self.scaler_ is None:
            return weight, bias
        slopes = weight * self._gain / self.scaler_.scale_
        return slopes, bias - slopes @ self.scaler_.mean_

    @property
    def coef_(self) -> Array:
        """Of a linear model, after `reveal()`."""
        return self._revealed("coef_")[0]

    @property
    def intercept_(self) -> Any:
        """Of a linear model, after `reveal()`."""
        return self._revealed("intercept_")[1]

    def _revealed(self, name: str) -> tuple[Array, Any]:
        found: tuple[Array, Any] | None = getattr(self, "_coefficients", None)
        if found is None:
            linear = getattr(self, "_linear", True)
            why = "fit it and call reveal()" if linear else "only a linear model, hidden=(), has it"
            raise AttributeError(f"{type(self).__name__} has no {name}: {why}")
        return found

    def forget(self) -> None:
        """Have the parties forget the model; the estimator is as it was before `fit`."""
        check_is_fitted(self)
        self._private().delete()
        if (deletion := getattr(self, "_deletion", None)) is not None:  # copies have none
            deletion.detach()
        for name in [name for name in vars(self) if name.endswith("_") or name in FITTED]:
            delattr(self, name)

    def _forget(self) -> None:
        """The model of an earlier `fit`, unless it was named or copied, is not wanted any more."""
        earlier = getattr(self, "_deletion", None)
        if earlier is not None:
            earlier()


class PrivateClassifier(ClassifierMixin, PrivateEstimator):
    """A classifier that is trained on shares: logistic regression, or a network of cosines.

    Of two classes there is one logit, of more one for each, trained one against all. `classes_` has their names, which
    the parties do not see. Parameters and the other attributes are those of `PrivateEstimator`.
    """

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train on rows and labels, or on data sets that were uploaded: a name, a list of names (rows of several
        owners) or a tuple of names (columns of several owners), with labels 0 to k - 1 and features of size about 1.
        `sample_weight` says how much each row counts.
        """
        if _are_names(X):
            outputs = self._fit_named(X, y, LOGISTIC, sample_weight)
            self.classes_ = np.arange(max(2, outputs))
            return self
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(f"there is nothing to tell apart: the labels have 1 class only, {self.classes_[0]!r}")
        outputs = 1 if len(self.classes_) == 2 else len(self.classes_)
        return self._fit_rows(X, labels, outputs, LOGISTIC, sample_weight)

    def decision_function(self, X: Any) -> Array:
        """Logits: one for each row of two classes, else one for each class."""
        logits = self._logits(X)
        return logits[:, 0] if logits.shape[1] == 1 else logits

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class. Of several, each against all others, over their sum."""
        return self._probabilities(self._logits(X))

    def predict(self, X: Any) -> Array:
        """The most probable class of each row."""
        return self._labels(self._logits(X))

    def _probabilities(self, logits: Array) -> Array:
        each = np.hstack([probabilities(column[:, None]) for column in logits.T])
        if each.shape[1] == 1:
            return np.hstack([1 - each, each])
        return np.asarray(each / each.sum(axis=1, keepdims=True))

    def _labels(self, logits: Array) -> Array:
        best = logits.argmax(axis=1) if logits.shape[1] > 1 else (logits[:, 0] > 0).astype(np.int64)
        return np.asarray(self.classes_[best])

    def _columns(self, X: Any) -> dict[str, Array]:
        logits = self._logits(X)
        probable = zip(self.classes_, self._probabilities(logits).T, strict=True)
        return {"prediction": self._labels(logits)} | {f"probability_{name}": column for name, column in probable}


class PrivateRegressor(RegressorMixin, PrivateEstimator):
    """A regression that is trained on shares: linear, or a network of cosines.

    Targets are standardised before they are split, and predictions are in their units again. Parameters and attributes
    are those of `PrivateEstimator`.
    """

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train on rows and numbers, or on data sets that were uploaded with loss="squared": a name, a list of names
        (rows of several owners) or a tuple of names (columns of several owners), features and targets of size about 1.
        `sample_weight` says how much each row counts.
        """
        if _are_names(X):
            self._fit_named(X, y, SQUARED, sample_weight)
            self._mean, self._scale = 0.0, 1.0
            return self
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        self._mean, self._scale = float(np.mean(y)), float(np.std(y)) or 1.0
        return self._fit_rows(X, (y - self._mean) / self._scale, 1, SQUARED, sample_weight)

    def predict(self, X: Any) -> Array:
        """The number of each row, in the units of `y`."""
        return self._logits(X)[:, 0] * self._scale + self._mean

    def _in_units(self, weight: Array, bias: Array) -> tuple[Array, Any]:
        slopes, intercepts = super()._in_units(weight, bias)
        return slopes[0] * self._scale, float(intercepts[0]) * self._scale + self._mean

    def _columns(self, X: Any) -> dict[str, Array]:
        return {"prediction": self.predict(X)}


def _are_names(X: Any) -> bool:
    """Whether data sets are named instead of rows."""
    return isinstance(X, str) or (isinstance(X, list | tuple) and len(X) > 0 and all(isinstance(n, str) for n in X))


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == AUTO


def _loss_of(
    network: Network, private: PrivateModel, x: Array, y: Array, loss: str, epochs: int, most: int
) -> float | None:
    """The loss of some rows after training; RangeError if it diverged, which nobody sees on shares."""
    watch = Watch.sample(network, loss, x, one_hot(y, network.output_shape[0], loss), most)
    if watch is None or np.ptp(watch.targets) == 0:  # any noise is far from targets that are all the same
        return None
    scores = private.predict(watch.rows)
    found = watch.epoch(epochs, 0.0, scores).loss
    worst = WORSE * max(watch.start, mean_loss(np.zeros_like(scores), watch.targets, loss))
    if found is not None and found > worst:
        raise RangeError(
            f"training diverged: the loss of your training rows is {found:.3g}, and guessing has {worst / WORSE:.3g}. "
            f"Weights have left the range that shares hold: use a larger alpha, or a smaller lr"
        )
    return found
