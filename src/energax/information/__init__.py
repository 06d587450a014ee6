"""Information: entropy, divergences and mutual information of tables, distributions and samples.

The argument decides what is computed:

- an array of probabilities: the exact number, also of JAX arrays under `jit` and `grad`;
- a NumPyro distribution: an `Estimate`, exact where there is a closed form or a finite support, else by
draws; - `Samples(rows)`: an `Estimate` with a standard error, by counts or by nearest neighbours.

Numbers are in nats; `base=2` gives bits.
"""

from ._functions import conditional_entropy as conditional_entropy
from ._functions import cross_entropy as cross_entropy
from ._functions import entropy as entropy
from ._functions import jensen_shannon as jensen_shannon
from ._functions import joint_entropy as joint_entropy
from ._functions import kl as kl
from ._functions import mutual_information as mutual_information
from ._samples import Samples as Samples

__all__ = [
    "Samples",
    "conditional_entropy",
    "cross_entropy",
    "entropy",
    "jensen_shannon",
    "joint_entropy",
    "kl",
    "mutual_information",
]
