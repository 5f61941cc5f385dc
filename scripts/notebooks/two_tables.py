# %% [markdown]
# # Two tables, one model
#
# A bank and a shop know the same people. The bank knows their age, education, marriage and region; the shop knows their
# work, their hours and their money, and who of them has an income above a limit. Neither may show its table to the
# other, nor to anybody else. Together they train a model that neither of them holds.
#
# The people are generated, and so is everything that is learnt about them.

# %%
from contextlib import ExitStack

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score, roc_curve
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import hdcos
from hdcos.data.synthetic import adult_like
from hdcos.sklearn import PrivateClassifier

people = pd.DataFrame(adult_like(4000, seed=1)).set_index("id")
bank = people[["age", "education", "marital_status", "region"]]
shop = people[["hours_per_week", "capital_gain", "capital_loss", "work", "occupation", "owns_home"]]
label = people["income_above"]
print(bank.head(3).to_string())
print(shop.head(3).to_string())

# %% [markdown]
# ## Each owner prepares its own columns
#
# Rows are in the same order here; `hdcos join` finds the people that two real tables share, and shows no others. Gaps
# are filled in and marked, categories become columns of zeros and ones, and everything gets mean 0 and variance 1. No
# statistic of a column leaves its owner.


# %%
def preparation(table: pd.DataFrame):
    numbers = table.select_dtypes(["number", "bool"]).columns
    made = make_column_transformer(
        (SimpleImputer(add_indicator=True), numbers),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), table.columns.difference(numbers)),
    )
    return make_pipeline(made, StandardScaler()).set_output(transform="pandas").fit(table)


train, test = slice(0, 3000), slice(3000, None)
tables = {"bank": bank, "shop": shop}
rows = {name: preparation(table[train]).transform(table).clip(-8, 8) for name, table in tables.items()}
print({name: f"{table.shape[1]} columns became {rows[name].shape[1]} features" for name, table in tables.items()})

# %% [markdown]
# ## Training on shares
#
# Each owner splits its rows into two uniform shares, one for each party. The names of the data sets are all that is
# needed to train: a tuple stands for columns side by side. Settings follow from the sizes of the tables; 15 epochs
# instead of 44 keep this notebook quick.

# %%
session = ExitStack()
cluster = session.enter_context(hdcos.local())  # on this machine; hdcos.connect("cluster.toml") for parties elsewhere
cluster.upload(rows["bank"][train], name="bank")
cluster.upload(rows["shop"][train], label[train], name="shop")
together = PrivateClassifier(epochs=15, cluster=cluster, random_state=0).fit(("bank", "shop"))
online = together.cost_.online
print(f"{together.n_iter_} epochs, {online.rounds:,} rounds, {online.bytes_sent[0] / 1e6:.0f} MB each way")

# %% [markdown]
# ## Was it worth it?
#
# What each owner could have learnt alone, what both learn together on shares, and what scikit-learn would learn if all
# rows were in one place.

# %%
both = pd.concat(rows.values(), axis=1)
chances = {"together, on shares": together.predict_proba(both[test])[:, 1]}
for name, table in {"bank alone": rows["bank"], "shop alone": rows["shop"], "pooled, in plaintext": both}.items():
    alone = LogisticRegression(max_iter=1000).fit(table[train], label[train])
    chances[name] = alone.predict_proba(table[test])[:, 1]
accuracy = {name: np.mean((chance > 0.5) == label[test]) for name, chance in chances.items()}
for name, value in accuracy.items():
    print(f"{name:22} {value:6.1%} right, AUC {roc_auc_score(label[test], chances[name]):.3f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
left.barh(list(accuracy), list(accuracy.values()), color=["C3", "C7", "C7", "C0"])
left.set(xlim=(0.7, 0.95), xlabel="accuracy on people that were not trained on")
for name, chance in chances.items():
    right.plot(*roc_curve(label[test], chance)[:2], label=name, linestyle="--" if "pooled" in name else "-")
right.set(xlabel="false positives", ylabel="true positives")
right.legend(fontsize="small")

# %% [markdown]
# ## Predictions with their ids
#
# A table goes in, and a table with the same index comes out. Rows travel as shares; only the caller sees answers.

# %%
predictions = together.predict_frame(both[test])
print(predictions.head(4).round(3).to_string())

# %% [markdown]
# ## What does it rest on?
#
# Of 3,000 rows the default is a linear model: logistic regression. Its coefficients are in shares, as all weights are.
# If both parties approve, `reveal()` joins them; parties on this machine approve everything.

# %%
together.reveal()
weights = pd.Series(together.coef_[0], both.columns)
largest = weights.loc[weights.abs().sort_values().index[-10:]]
print(largest.round(2).to_string())
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
axes.barh([name.split("__")[-1] for name in largest.index], largest, color=np.where(largest > 0, "C2", "C1"))
axes.set(xlabel="coefficient of a standardised feature")

# %% [markdown]
# ## Nothing is left behind
#
# Owners forget their data sets when they like, and the parties of this notebook end with it.

# %%
together.forget()
for name in tables:
    cluster.forget_data(name)
print(cluster.datasets(), cluster.models())
session.close()
