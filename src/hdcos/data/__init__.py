"""Public data sets, read from files the user has; nothing is downloaded.

folder   where the files are, and reading them whole whether compressed or not
idx      the IDX format of MNIST and its relatives
images   mnist, fashion_mnist
higgs    the HIGGS table of signal and background events
digits   the small digits that scikit-learn brings
tables   anybody's features and labels: CSV, NPZ, IDX, Parquet

A missing file is DataMissing, a damaged one InputError; both name the file.
"""

from hdcos.data.digits import digits as digits
from hdcos.data.folder import folder as folder
from hdcos.data.higgs import higgs as higgs
from hdcos.data.images import fashion_mnist as fashion_mnist
from hdcos.data.images import mnist as mnist
from hdcos.data.tables import read_table as read_table
