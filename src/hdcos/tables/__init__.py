"""Tables as people have them become rows of numbers: columns are declared, fitted, and prepared the same ever after.

columns      the declaration: what each column is, what stands for missing cells, how it becomes features
cells        cells of one column as numbers, truths, days or texts, with what is missing, errors by row
reading      files, DataFrames and Arrow tables, piece by piece
inference    a declaration guessed from a table, to be looked at and edited
encoding     the features that become of one column
fitting      the values and statistics of one owner's own rows
statistics   sums over rows that a preparation is made of, exact, and how those of several owners are added
preparation  the fitted thing: a table's features, labels and ids, and a digest that says whether two are the same

Tables are pyarrow's inside, which `pip install 'hdcos[tables]'` brings. pandas is not needed.

Security  everything here happens at the owner of the rows. What leaves is shares of prepared rows (`cluster.upload`),
          shares of statistics (`cluster.contribute`), and the public description of a preparation: the names of
          features, among them those of categories that are not hashed, and a salted digest.
"""

from hdcos.tables.columns import Column as Column
from hdcos.tables.columns import Columns as Columns
from hdcos.tables.inference import infer as infer
from hdcos.tables.preparation import Preparation as Preparation
from hdcos.tables.preparation import PreparedRows as PreparedRows
from hdcos.tables.preparation import prepare_together as prepare_together
from hdcos.tables.statistics import Statistics as Statistics
