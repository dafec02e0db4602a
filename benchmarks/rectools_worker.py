"""RecTools' SASRec, as a side of `peers.py`; runs in its environment.

The loss is its softmax over all items. Training is a plain loop over its own batches, its module's
loss and torch's fused Adam, without Lightning's trainer around them; evaluation is its `recommend`,
20 items for each session without its last. SASRec's blocks are smaller than GPT-2's: their
feed-forward layers are d wide instead of 4 d.
"""

import logging
import warnings
from itertools import islice

warnings.simplefilter("ignore")

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import torch  # noqa: E402
from rectools import Columns  # noqa: E402
from rectools.dataset import Dataset  # noqa: E402
from rectools.models import SASRecModel  # noqa: E402
from torch.utils.data import DataLoader, Subset  # noqa: E402

from peer_study import run_peer  # noqa: E402

STEPS = 2
"""Of a turn's training: its loss is over all 20 positions of each session, padding included."""
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


def events(items: np.ndarray, lengths: np.ndarray) -> pd.DataFrame:
    """Return sessions as the library takes them: an event per row, a user per session."""
    return pd.DataFrame(
        {
            Columns.User: np.arange(len(lengths)).repeat(lengths),
            Columns.Item: items,
            Columns.Weight: 1.0,
            Columns.Datetime: pd.to_datetime(np.arange(len(items)), unit="s"),
        }
    )


class Study:
    """Some steps of training and a pass of evaluation over the sessions."""

    def __init__(self, given: dict) -> None:
        stored = np.load(given["sessions"])
        lengths, n_items = np.diff(stored["offsets"]), given["n_items"]
        known = events(stored["items"], lengths)
        is_last = np.zeros(len(known), bool)
        is_last[stored["offsets"][1:] - 1] = True
        self.targets = known[is_last].set_index(Columns.User)[Columns.Item]
        self.without_last = Dataset.construct(known[~is_last])
        # The catalogue is what the sessions have, so more of them, never trained on, hold the rest.
        rest = np.full(-(-n_items // given["longest"]), given["longest"])
        every = np.arange(rest.sum()) % n_items
        whole = events(np.concatenate([stored["items"], every]), np.concatenate([lengths, rest]))
        self.model = SASRecModel(
            n_blocks=given["n_layer"],
            n_heads=given["n_head"],
            n_factors=given["d_model"],
            dropout_rate=given["dropout"],
            session_max_len=given["longest"],
            loss="softmax",
            lr=given["learning_rate"],
            batch_size=given["batch_size"],
            epochs=0,
            recommend_batch_size=given["evaluation_batch_size"],
            recommend_torch_device="cpu",
        ).fit(Dataset.construct(whole))
        every_loader = self.model.data_preparator.get_dataloader_train()
        self.loader = DataLoader(
            Subset(every_loader.dataset, range(len(lengths))),
            batch_size=given["batch_size"],
            shuffle=True,
            collate_fn=every_loader.collate_fn,
        )
        self.module = self.model.lightning_model
        self.module.on_train_start()  # draws the first weights
        self.optimizer = torch.optim.Adam(
            self.module.parameters(), lr=given["learning_rate"], fused=True
        )
        self.max_grad_norm = given["max_grad_norm"]

    def fit(self) -> tuple[int, float]:
        """Train for STEPS; return the sessions and the mean loss."""
        self.module.train()
        losses, n_sessions = [], 0
        for batch in islice(self.loader, STEPS):
            n_sessions += len(batch["x"])
            logits = self.module.get_batch_logits(batch)
            loss = self.module.loss_calculator(logits, batch["y"], batch["yw"])
            self.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.module.parameters(), self.max_grad_norm)
            self.optimizer.step()
            losses.append(loss.item())
        return n_sessions, float(np.mean(losses))

    def evaluate(self) -> tuple[int, float]:
        """Recommend after each session without its last; return the sessions and recall@20."""
        found = self.model.recommend(
            self.targets.index.to_numpy(), self.without_last, k=20, filter_viewed=False
        )
        is_hit = found[Columns.Item].to_numpy() == self.targets[found[Columns.User]].to_numpy()
        return len(self.targets), is_hit.sum() / len(self.targets)


if __name__ == "__main__":
    run_peer(Study)
