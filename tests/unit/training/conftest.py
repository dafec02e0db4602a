"""One thread: tiny tensors only wait for a second one."""

import torch

torch.set_num_threads(1)
