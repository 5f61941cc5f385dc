"""Public data sets, read from the user's files; MNIST and Fashion-MNIST are downloaded where they are missing.

folder     where the files are, and reading them whole whether compressed or not
download   files from those who publish them, checked by their SHA-256
idx        the IDX format of MNIST and its relatives
images     mnist, fashion_mnist
higgs      the HIGGS table of signal and background events
criteo     Criteo's display advertisements: integers, categories and their embeddings
synthetic  rows in the formats of Criteo and HIGGS that nobody measured
digits     the small digits that scikit-learn brings
tables     anybody's features and labels: CSV, NPZ, IDX, Parquet

A missing file is DataMissing, a damaged one InputError; both name the file.
"""

from hdcos.data.criteo import criteo as criteo
from hdcos.data.digits import digits as digits
from hdcos.data.folder import folder as folder
from hdcos.data.higgs import higgs as higgs
from hdcos.data.images import fashion_mnist as fashion_mnist
from hdcos.data.images import mnist as mnist
from hdcos.data.tables import Table as Table
from hdcos.data.tables import read_table as read_table
