"""Settings for private training, found in plaintext on the caller's own rows.

scaling      columns of mean 0 and size 1, and a trained network that takes rows as they were
candidates   what is tried: layers, structure, loss, rate, decay, batch; and what each would cost on shares
trial        one candidate trained on some rows and judged by others
search       many candidates on few rows, few on many, within a time
sources      what is trained on: a file, or data sets of several owners
config       what was found as a configuration that `hdcos train` runs

Security  everything is computed here, on rows that the caller has anyway, and nothing of them leaves. For data sets of
          several owners the parties are asked how large they are. What they learn of a later run is the configuration:
          the network's layers and the settings of training are public, and they were chosen by looking at these rows. A
          run on several owners' rows has a configuration that one of them chose.
"""

from hdcos.suggest.config import render as render
from hdcos.suggest.search import Suggestion as Suggestion
from hdcos.suggest.search import find_settings as find_settings
from hdcos.suggest.sources import DataSets as DataSets
from hdcos.suggest.sources import FileSource as FileSource
