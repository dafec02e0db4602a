"""RecTools' SASRec and BERT4Rec, as sides of `peers.py`; runs in its environment.

The loss is their softmax over all items, or another of theirs that the settings name, over all
positions of a batch, padding included. Training is a plain loop over the library's own batches, its
module's loss and the Adam that it takes, without Lightning's trainer around them. `fit_partial`
goes on with the sessions of the first fit alone, so it is this module that is trained further, with
all items from the start. Scores are those that `recommend` ranks; evaluation is `recommend` itself,
20 items for each session without its last. SASRec's blocks are smaller than GPT-2's: their
feed-forward layers are d wide instead of 4 d.
"""

import logging
import warnings
from functools import cached_property
from typing import Any

warnings.simplefilter("ignore")

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import torch  # noqa: E402
from rectools import Columns  # noqa: E402
from rectools.dataset import Dataset  # noqa: E402
from rectools.models import BERT4RecModel, SASRecModel  # noqa: E402
from torch import Tensor  # noqa: E402

from peer_study import PeerModel, Sessions, run_peer  # noqa: E402

MODELS = {"sasrec": SASRecModel, "bert4rec": BERT4RecModel}
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


def events(sessions: Sessions) -> pd.DataFrame:
    """Return sessions as the library takes them: an event per row, a user per session."""
    items = torch.cat(sessions).numpy()
    return pd.DataFrame(
        {
            Columns.User: np.arange(len(sessions)).repeat([len(each) for each in sessions]),
            Columns.Item: items,
            Columns.Weight: 1.0,
            Columns.Datetime: pd.to_datetime(np.arange(len(items)), unit="s"),
        }
    )


class Model(PeerModel):
    """The model whose name is the architecture of the settings."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.n_items, longest = given["n_items"], given["longest"]
        # The catalogue is what the sessions of a fit have, so this one, of no epoch, has all items.
        every = torch.arange(-(-self.n_items // longest) * longest) % self.n_items
        catalogue = events(list(every.split(longest)))
        self.model = MODELS[given["architecture"]](
            n_blocks=given["n_layer"],
            n_heads=given["n_head"],
            n_factors=given["d_model"],
            dropout_rate=given["dropout"],
            session_max_len=longest,
            loss=given.get("loss", "softmax"),
            n_negatives=given.get("n_negatives", 1),
            lr=given["learning_rate"],
            batch_size=given["batch_size"],
            epochs=0,
            recommend_batch_size=given["evaluation_batch_size"],
            recommend_torch_device="cpu",
        ).fit(Dataset.construct(catalogue))
        prepared = self.model.data_preparator
        self.collate = prepared.get_dataloader_train().collate_fn
        self.first = prepared.n_item_extra_tokens
        """Index of item 0, after those of padding and masks."""
        known = prepared.get_known_item_ids()
        assert np.array_equal(known, np.arange(self.n_items)), "items in an order of their own"
        self.module = self.model.lightning_model
        self.module.on_train_start()  # draws the first weights
        self.optimizer = torch.optim.Adam(
            self.module.parameters(),
            lr=given["learning_rate"],
            betas=self.module.adam_betas,
            fused=True,
        )

    def loss(self, sessions: Sessions) -> Tensor:
        """Return the loss of a batch in training."""
        numbers = [(each + self.first).tolist() for each in sessions]
        batch = self.collate([(each, [1.0] * len(each), {}) for each in numbers])
        logits = self.module.get_batch_logits(batch)
        return self.module.loss_calculator(logits, batch["y"], batch["yw"])

    def scores(self, sessions: Sessions) -> Tensor:
        """Return the scores that `recommend` would rank."""
        known = Dataset.construct(events(sessions))
        users = known.user_id_map.external_ids
        seen = self.model.data_preparator.transform_dataset_u2i(known, users)
        loader = self.model.data_preparator.get_dataloader_recommend(
            seen, self.model.recommend_batch_size
        )
        of_sessions, of_items = self.module._get_user_item_embeddings(loader, "cpu")
        return of_sessions @ of_items[self.first :].T

    def recall(self, sessions: Sessions) -> float:
        """Recommend after each session without its last; return recall@20."""
        self._evaluated = sessions
        found = self.model.recommend(
            self._targets.index.to_numpy(), self._without_last, k=20, filter_viewed=False
        )
        wanted = self._targets[found[Columns.User]].to_numpy()
        return (found[Columns.Item].to_numpy() == wanted).sum() / len(sessions)

    @cached_property
    def _targets(self) -> pd.Series:
        last = [int(each[-1]) for each in self._evaluated]
        return pd.Series(last, pd.RangeIndex(len(last)))

    @cached_property
    def _without_last(self) -> Dataset:
        return Dataset.construct(events([each[:-1] for each in self._evaluated]))


if __name__ == "__main__":
    run_peer(Model)
