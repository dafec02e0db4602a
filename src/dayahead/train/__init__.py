"""The protocol: fit on each window, evaluate on the next."""

import warnings

# At import Merlin warns of each optional library that is not installed.
warnings.filterwarnings("ignore", message=r"(Tensorflow|Triton) dtype mappings did not load")
warnings.filterwarnings("ignore", message="Initializing an NVTabular Dataset in CPU mode")
