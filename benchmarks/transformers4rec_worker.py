"""Transformers4Rec's side of `peers.py`; runs in its environment, which has none of our packages.

The model is built as in the library's scripts for its paper: item ids alone, the item table tied
to the output, the transformer's configuration from its own `build`. Its steps are a plain loop
over the model with torch's fused AdamW: the same steps by its Trainer, with its loader, take some
percent more time. Metrics of evaluation are its own, NDCG and recall at 10 and 20.
"""

import warnings

warnings.simplefilter("ignore")

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers4rec.torch as tr  # noqa: E402
from merlin.schema import ColumnSchema, Schema, Tags  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn.utils import clip_grad_norm_  # noqa: E402
from torch.nn.utils.rnn import pad_sequence  # noqa: E402
from transformers4rec.torch.ranking_metric import NDCGAt, RecallAt  # noqa: E402

from peer_study import run_peer  # noqa: E402

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


class Study:
    """An epoch of training and a pass of evaluation over the sessions."""

    def __init__(self, given: dict) -> None:
        stored = np.load(given["sessions"])
        items = torch.from_numpy(stored["items"]) + 1  # 0 is padding
        self.sessions = items.split(np.diff(stored["offsets"]).tolist())
        self.given = given
        self.model = build_model(given)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=given["learning_rate"],
            weight_decay=given["weight_decay"],
            fused=True,
        )

    def batches(self, order: Tensor, size: int) -> list[dict[str, Tensor]]:
        """Return batches of sessions in this order, each padded to its longest session."""
        chosen = [self.sessions[row] for row in order.tolist()]
        parts = [chosen[start : start + size] for start in range(0, len(chosen), size)]
        return [{ITEM: pad_sequence(part, batch_first=True)} for part in parts]

    def fit(self) -> tuple[int, float]:
        """Train for one epoch; return the sessions and the mean loss."""
        self.model.train()
        losses = []
        order = torch.randperm(len(self.sessions))
        for batch in self.batches(order, self.given["batch_size"]):
            loss = self.model(batch, training=True)["loss"]
            self.optimizer.zero_grad()
            loss.backward()
            clip_grad_norm_(self.model.parameters(), self.given["max_grad_norm"])
            self.optimizer.step()
            losses.append(loss.item())
        return len(order), float(np.mean(losses))

    @torch.no_grad()
    def evaluate(self) -> tuple[int, float]:
        """Predict the last item of each session; return the sessions and recall@20."""
        self.model.eval()
        self.model.reset_metrics()
        order = torch.arange(len(self.sessions))
        for batch in self.batches(order, self.given["evaluation_batch_size"]):
            output = self.model(batch, training=False, testing=True)
            self.model.calculate_metrics(output["predictions"], output["labels"])
        metrics = self.model.compute_metrics()
        (recall,) = (
            value for name, value in flat(metrics).items() if name.endswith("recall_at_20")
        )
        return len(order), float(recall)


def flat(metrics: dict) -> dict:
    """Return the innermost entries of nested dictionaries."""
    found = {}
    for name, value in metrics.items():
        found |= flat(value) if isinstance(value, dict) else {name: value}
    return found


if __name__ == "__main__":
    run_peer(Study)
