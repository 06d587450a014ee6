"""Parameters as hidden variables: posteriors over θ, and predictions averaged over them."""

from ._bayes import Bayes as Bayes
from ._numpyro import NumPyroEnergy as NumPyroEnergy
from ._numpyro import from_numpyro as from_numpyro
from ._parameter_energy import ParameterEnergy as ParameterEnergy
