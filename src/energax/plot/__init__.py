"""Plots with Matplotlib. Each function takes `ax=` and returns the axes it drew on."""

from ._chains import autocorrelation as autocorrelation
from ._chains import rank as rank
from ._chains import trace as trace
from ._decoded import decoded as decoded
from ._forecast import forecast as forecast
from ._joint import forest as forest
from ._joint import pairs as pairs
from ._junction import junction_tree as junction_tree
from ._network import network as network
from ._transitions import transitions as transitions
