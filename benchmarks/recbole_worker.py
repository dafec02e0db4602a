"""RecBole's GRU4Rec, as a side of `peer_accuracy.py`; runs in its environment.

Each item after the first of a session is an example, as in the library's data augmentation. The
model, its loss over all items and its scores are the library's; training is a plain loop.
"""

from typing import Any

import torch
from recbole.model.sequential_recommender.gru4rec import GRU4Rec
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from peer_study import PeerModel, Sessions, run_peer

FIELDS = {
    "USER_ID_FIELD": "user_id",
    "ITEM_ID_FIELD": "item_id",
    "LIST_SUFFIX": "_list",
    "ITEM_LIST_LENGTH_FIELD": "item_length",
    "NEG_PREFIX": "neg_",
}
"""Names of fields in the library's configuration."""


class Catalogue:
    """As much of the library's data set as its model reads."""

    def __init__(self, n_items: int) -> None:
        self.n_items = n_items

    def num(self, _field: str) -> int:
        """Return the number of items, padding included."""
        return self.n_items + 1


class Model(PeerModel):
    """GRU4Rec."""

    def __init__(self, given: dict[str, Any]) -> None:
        config = FIELDS | {
            "MAX_ITEM_LIST_LENGTH": given["longest"],
            "device": "cpu",
            "embedding_size": given["d_model"],
            "hidden_size": 2 * given["d_model"],  # as by default
            "num_layers": given["n_layer"],
            "dropout_prob": given["dropout"],
            "loss_type": "CE",
        }
        self.module = GRU4Rec(config, Catalogue(given["n_items"]))
        self.optimizer = torch.optim.Adam(
            self.module.parameters(), lr=given["learning_rate"], fused=True
        )

    def loss(self, sessions: Sessions) -> Tensor:
        """Return the loss of a batch in training."""
        prefixes = [each[:end] for each in sessions for end in range(1, len(each))]
        targets = torch.cat([each[1:] for each in sessions]) + 1
        return self.module.calculate_loss(self._fields(prefixes) | {"item_id": targets})

    def scores(self, sessions: Sessions) -> Tensor:
        """Return the scores of all items."""
        return self.module.full_sort_predict(self._fields(sessions))[:, 1:]  # without padding

    def _fields(self, sessions: Sessions) -> dict[str, Tensor]:
        padded = pad_sequence(sessions, batch_first=True, padding_value=-1) + 1  # 0 is padding
        lengths = torch.tensor([len(each) for each in sessions])
        return {"item_id_list": padded, "item_length": lengths}


if __name__ == "__main__":
    run_peer(Model)
