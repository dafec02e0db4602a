"""The protocol: fit on each window, evaluate on the next."""

import warnings

# Merlin warns at import of every library it could map types for and does not find.
warnings.filterwarnings("ignore", message=r"(Tensorflow|Triton) dtype mappings did not load")
warnings.filterwarnings("ignore", message="Initializing an NVTabular Dataset in CPU mode")
