"""Parameters as hidden variables: posteriors over θ, and predictions averaged over them."""

from ._bayes import Bayes as Bayes
from ._ensemble import bagging as bagging
from ._ensemble import deep_ensemble as deep_ensemble
from ._numpyro import NumPyroEnergy as NumPyroEnergy
from ._numpyro import from_numpyro as from_numpyro
from ._parameter_energy import ParameterEnergy as ParameterEnergy
from ._predictive import Predictive as Predictive
from ._predictive import PredictiveCheck as PredictiveCheck
from ._predictive import predictive as predictive
