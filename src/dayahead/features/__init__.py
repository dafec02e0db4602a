"""Raw events into model inputs; shared by preprocess and serve."""

import warnings

# At import Merlin warns of each optional library that is not installed.
warnings.filterwarnings("ignore", message=r"(Tensorflow|Triton) dtype mappings did not load")
warnings.filterwarnings("ignore", message="Initializing an NVTabular Dataset in CPU mode")
