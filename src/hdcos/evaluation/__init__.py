"""How well a model does on rows whose labels are known.

metrics   accuracy, confusion matrix, AUC, log loss and calibration; RMSE and R2: from pieces, in bounded memory
plot      a picture of these, with matplotlib

Security  all of it is computed where the rows and their labels are, from answers that their caller got anyway. The
          parties see a prediction like any other, and count its rows.
"""

from hdcos.evaluation.metrics import ClassScores as ClassScores
from hdcos.evaluation.metrics import NumberScores as NumberScores
