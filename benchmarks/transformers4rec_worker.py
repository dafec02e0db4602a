"""Transformers4Rec's side of `peers.py`; runs in its environment, which has none of our packages.

The model is built as in the library's scripts for its paper: item ids alone, the item table tied
to the output, the transformer's configuration from its own `build`. Its steps are a plain loop
over the model with torch's fused AdamW: the same steps by its Trainer, with its loader, take some
percent more time. Metrics of evaluation are its own, NDCG and recall at 10 and 20.
"""

import warnings
from typing import Any

warnings.simplefilter("ignore")

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers4rec.torch as tr  # noqa: E402
from merlin.schema import ColumnSchema, Schema, Tags  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn.functional import pad  # noqa: E402
from torch.nn.utils.rnn import pad_sequence  # noqa: E402
from transformers4rec.torch.ranking_metric import NDCGAt, RecallAt  # noqa: E402

from peer_study import PeerModel, Sessions, run_peer  # noqa: E402

CONFIGS = {"gpt2": tr.GPT2Config, "xlnet": tr.XLNetConfig}
ITEM = "item_id"


def build_model(given: dict) -> tr.Model:
    """Return the model of the settings, not trained."""
    schema = Schema(
        [
            ColumnSchema(
                ITEM,
                dtype=np.int64,
                tags=[Tags.ITEM_ID, Tags.CATEGORICAL, Tags.LIST],
                properties={
                    "domain": {"min": 0, "max": given["n_items"]},
                    "value_count": {"min": 0, "max": given["longest"]},
                },
            )
        ]
    )
    is_mlm = given["task"] == "mlm"
    inputs = tr.TabularSequenceFeatures.from_schema(
        schema,
        max_sequence_length=given["longest"],
        embedding_dims={ITEM: given["d_model"]},
        masking=given["task"],
        **({"mlm_probability": given["mlm_probability"]} if is_mlm else {}),
    )
    config = CONFIGS[given["architecture"]].build(
        d_model=given["d_model"],
        n_head=given["n_head"],
        n_layer=given["n_layer"],
        total_seq_length=given["longest"],
        dropout=given["dropout"],
    )
    metrics = [measure(top_ks=[10, 20], labels_onehot=True) for measure in (NDCGAt, RecallAt)]
    task = tr.NextItemPredictionTask(weight_tying=True, metrics=metrics)
    return config.to_torch_model(inputs, task, max_sequence_length=given["longest"])


def padded(sessions: Sessions, longest: int) -> dict[str, Tensor]:
    """Return a batch, padded to one length as the library's loader does: padding is attended to."""
    items = pad_sequence(sessions, batch_first=True, padding_value=-1) + 1  # 0 is padding
    return {ITEM: pad(items, (0, longest - items.shape[1]))}


class Model(PeerModel):
    """The model of the settings."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.size, self.longest = given["evaluation_batch_size"], given["longest"]
        self.n_added = int(given["task"] == "mlm")
        """Events that the model adds to sessions in service: a mask at their end."""
        self.module = build_model(given)
        self.optimizer = torch.optim.AdamW(
            self.module.parameters(),
            lr=given["learning_rate"],
            weight_decay=given["weight_decay"],
            fused=True,
        )

    def loss(self, sessions: Sessions) -> Tensor:
        """Return the loss of a batch in training."""
        return self.module(padded(sessions, self.longest), training=True)["loss"]

    def scores(self, sessions: Sessions) -> Tensor:
        """Return the scores that the model gives in service."""
        batch = padded(sessions, self.longest - self.n_added)
        return self.module(batch, training=False, testing=False)[:, 1:]  # without padding

    @torch.no_grad()
    def recall(self, sessions: Sessions) -> float:
        """Predict the last item of each session; return recall@20."""
        self.module.eval()
        self.module.reset_metrics()
        for start in range(0, len(sessions), self.size):
            batch = padded(sessions[start : start + self.size], self.longest)
            output = self.module(batch, training=False, testing=True)
            self.module.calculate_metrics(output["predictions"], output["labels"])
        metrics = flat(self.module.compute_metrics())
        (found,) = (value for name, value in metrics.items() if name.endswith("recall_at_20"))
        return float(found)


def flat(metrics: dict) -> dict:
    """Return the innermost entries of nested dictionaries."""
    found = {}
    for name, value in metrics.items():
        found |= flat(value) if isinstance(value, dict) else {name: value}
    return found


if __name__ == "__main__":
    run_peer(Model)
