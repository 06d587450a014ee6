"""Readers, bundled data, the spaces of columns, scaling."""

from ..vocabulary import Vocabulary as Vocabulary
from ._bundled import digits as digits
from ._networks import read_bif as read_bif
from ._networks import read_uai as read_uai
from ._networks import write_bif as write_bif
from ._networks import write_uai as write_uai
from ._read import read as read
from ._scale import ColumnScaler as ColumnScaler
from ._spaces import find_spaces as find_spaces
from ._table import Table as Table
