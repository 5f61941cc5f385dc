"""Public data sets, read from the user's files; MNIST and Fashion-MNIST are downloaded where they are missing.

files      where the files are, where they come from, and reading them whole whether compressed or not
images     mnist, fashion_mnist, digits, and the IDX format
higgs      the HIGGS table of signal and background events
criteo     Criteo's display advertisements: integers, categories and their embeddings
synthetic  rows that nobody measured: in the formats of Criteo and HIGGS, and a census with categories and gaps
clinics    the two tables of the tutorial
tables     anybody's features and labels: CSV, NPZ, IDX, Parquet

A missing file is DataMissing, a damaged one InputError; both name the file.
"""

from hdcos.data.criteo import criteo as criteo
from hdcos.data.files import folder as folder
from hdcos.data.higgs import higgs as higgs
from hdcos.data.images import digits as digits
from hdcos.data.images import fashion_mnist as fashion_mnist
from hdcos.data.images import mnist as mnist
from hdcos.data.tables import Table as Table
from hdcos.data.tables import read_table as read_table
