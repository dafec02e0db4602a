"""Processes of one run: launch, rendezvous, collectives, sharding."""

import os

# Set before the first tensor is allocated: torch and oneDNN read each of these only once.
_DEFAULTS = {
    # Tensors of 2 MB or more lie in huge pages, where Linux allows them: fewer page faults, and
    # fewer misses of the TLB.
    "THP_MEM_ALLOC_ENABLE": "1",
    # Keep the kernels of the last 128 shapes of matrix products, not of 1,024. A catalogue that
    # grows brings new shapes in every window, of about .5 MB each. A step of training seldom meets
    # a shape again after 128 others. The first is oneDNN's cache, the second torch's before it.
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "128",
    "LRU_CACHE_CAPACITY": "128",
}
for _name, _value in _DEFAULTS.items():
    os.environ.setdefault(_name, _value)
