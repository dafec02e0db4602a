"""The next-item model: event inputs, a backbone, and scores over the catalogue."""

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from dayahead.config.model import LossConfig, ModelConfig, TaskConfig
from dayahead.core.columns import ITEM_ID, N_RESERVED, PADDING, WORTH
from dayahead.core.errors import ConfigError
from dayahead.core.phases import in_phase, phase
from dayahead.distributed.process import to_device
from dayahead.distributed.sharding import WHOLE, Shard
from dayahead.model.backbones import Backbone
from dayahead.model.embeddings import GrowingEmbedding
from dayahead.model.inputs import EventInputs, hide_new_items, projection, swap_noise
from dayahead.model.length_groups import group_sizes
from dayahead.model.losses import Negatives, NegativeSampler, catalogue_loss, weighted_loss
from dayahead.model.model import Model
from dayahead.model.output_layer import Columns, OutputLayer, Scorer, States
from dayahead.model.rng import StepRandom, derived_seed
from dayahead.model.rtd import Discriminator, generator_samples
from dayahead.model.tasks import Labels, PredictionPositions, build_task, is_before, session_events


class NextItemModel(nn.Module, Model):
    """Scores every item of the catalogue as the next item of a session.

    Built without items: `grow` adds them. Attribute names are those of the tensors in
    model.safetensors, hence `body` for the backbone.

    Args:
        config: architecture and sizes.
        task: decides what the backbone may attend to.
        loss: training loss over the items' scores.
        categoricals: side feature to the number of values that determines its embedding's size.
        numbers: numeric window-file column to the kind of its feature.
        max_length: longest session, target included.
        seed: root seed of all initial values.
        shard: which rows of the item tables and their bias this process holds.
    """

    def __init__(
        self,
        config: ModelConfig,
        task: TaskConfig,
        loss: LossConfig,
        *,
        categoricals: dict[str, int],
        numbers: Mapping[str, str],
        max_length: int,
        seed: int,
        shard: Shard = WHOLE,
    ) -> None:
        super().__init__()
        self.config = config
        self.task_config = task
        self.loss_config = loss
        self.loss = loss.at_size(0)
        """The loss at the catalogue's size."""
        self.shard = shard
        self.task = build_task(task)
        attention, item_dim = self.task.attention, config.item_dim
        # Modules draw from torch's global generator; its state is restored for the caller.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derived_seed(seed, "weights"))
            self.inputs = EventInputs(config, categoricals, numbers, seed, shard)
            self.mask = nn.Parameter(torch.randn(config.d_model) * config.init_std)
            # Others never read it, and DDP waits for every gradient that is required.
            self.mask.requires_grad_(attention == "bidirectional")
            self.body = Backbone(config, attention, max_length)
            self.detector = Discriminator(config.d_model) if task.name == "rtd" else None
            self.project_out = projection(config.d_model, item_dim, config.activation)
        if not config.tie_weights:
            own_seed = derived_seed(seed, "table", "output_items")
            std = config.item_init_std
            self.output_items = GrowingEmbedding(item_dim, std, own_seed, shard=shard)
            self.output_items.unknown.requires_grad_(False)  # these rows are never looked up
        self.sampler = NegativeSampler(loss) if loss.is_sampled else None
        self.bias = nn.Parameter(torch.empty(0))
        self.n_old_items = 0
        """Number of items in the catalogue before it last grew."""

    @property
    def network(self) -> "NextItemModel":
        """The model itself."""
        return self

    @property
    def n_items(self) -> int:
        """Items in the catalogue."""
        return self.inputs.items.n_rows

    @property
    def item_vectors(self) -> Float[Tensor, "m d"]:
        """The vector by which the network reads each item of the catalogue, without a gradient."""
        return self.inputs.items.weight.detach()

    @property
    def output_layer(self) -> OutputLayer:
        """Scores the catalogue's items by the input's table or, if untied, by another."""
        items = self.inputs.items if self.config.tie_weights else self.output_items
        is_sparse = items.has_sparse_gradient
        return OutputLayer(items.weight, self.bias, self.n_items, self.shard, is_sparse)

    @property
    def item_tables(self) -> frozenset[str]:
        """Names of the parameters with a vector for each item."""
        tables = {"inputs.items.weight"}
        return frozenset(tables if self.config.tie_weights else tables | {"output_items.weight"})

    @property
    def sharded(self) -> frozenset[str]:
        """Names of the parameters whose rows are sharded over the processes."""
        return frozenset() if self.shard.is_whole else self.item_tables | {"bias"}

    @property
    def reads_few_items(self) -> bool:
        """Whether a training step reads the rows of `losses.items_read` alone."""
        samples_all = self.detector is not None and self.task_config.rtd_replacements != "batch"
        smooths = self.loss_config.label_smoothing > 0
        return self.loss.is_sampled and not (samples_all or smooths)

    def set_sparse_gradients(self, *, are_sparse: bool) -> None:
        """Let the gradients of the item tables have the rows alone that a step reads."""
        self.inputs.items.has_sparse_gradient = are_sparse
        if not self.config.tie_weights:
            self.output_items.has_sparse_gradient = are_sparse

    def grow(self, sizes: Mapping[str, int]) -> None:
        """Add the first `sizes[column]` values of each vocabulary; old rows do not change.

        Raises:
            ConfigError: there are fewer items than processes to shard them over.
        """
        n_items = sizes[ITEM_ID]
        if n_items < self.shard.world_size:
            raise ConfigError(
                f"params.yaml: compute.shard_items: {n_items} items cannot be distributed to "
                f"{self.shard.world_size} processes; set it to false"
            )
        self.n_old_items = self.n_items
        self.loss = self.loss_config.at_size(n_items)
        self.inputs.grow(sizes)
        if not self.config.tie_weights:
            self.output_items.grow(n_items)
        n_new = self.shard.n_local(n_items) - len(self.bias)
        if n_new > 0:
            self.bias = nn.Parameter(pad(self.bias.detach(), (0, n_new)))

    def forward(
        self,
        columns: Columns,
        lengths: Int[Tensor, " B"],
        rng: StepRandom,
        length_groups: int = 1,
        negatives: Negatives | None = None,
    ) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
        """Sum of the loss over this batch's targets, and the number of targets.

        Where events have a worth: the sum of losses times worth, and the sum of worth.

        Where the backbone cannot pack sessions, the batch goes through it in up to `length_groups`
        parts, each cut to its longest session; with rows sorted by length, little padding is left.
        If the batch is on the CPU, sizes are known there and the host need not wait for a GPU.
        `negatives` are sampled here, if they have not been.
        """
        positions, labels = self.task.training_positions(columns[ITEM_ID], lengths, rng)
        # Noise only after the labels are taken: it must not change targets.
        read = {**columns, ITEM_ID: self._noisy(columns[ITEM_ID], rng)}
        states = self._output_states(read, positions, length_groups)
        with phase("loss"):
            sampled = self.negatives(rng) if negatives is None else negatives
            given = self.loss, states, self.output_layer, labels - N_RESERVED, sampled
            if WORTH in columns:
                weights = self.task.at_targets(columns[WORTH], positions)
                values = torch.unique(rng.global_marks[WORTH]).tolist()
                loss = weighted_loss(*given, weights, values)
                total = to_device(weights.sum(), loss.device)
            else:
                loss = catalogue_loss(*given)
                total = torch.full((), len(labels), device=loss.device)
        if self.detector is not None:
            detection = self._detection_loss(columns, positions, states, rng, length_groups)
            loss = self.task_config.rtd_generator_weight * loss + detection
        return loss, total

    @torch.no_grad()
    def scorer(self, candidates: Int[Tensor, " C"], *, overwrites: bool = False) -> Scorer:
        """Return a function that scores the candidates (vocabulary indices), without dropout.

        With sharded rows, it scores those on this process, for the sessions of all processes. If it
        `overwrites`, scores are valid until the next call: allocating memory for new ones takes as
        long as computing them.
        """
        self.eval()
        rows = candidates.to(self.bias.device) - N_RESERVED
        temperature = self.loss_config.temperature
        layer = self.output_layer.at_temperature(temperature)
        with_biases = layer.own_columns(rows)
        held = with_biases.new_empty(0, with_biases.shape[1])

        @torch.no_grad()
        def scores(columns: Columns, n_known: Int[Tensor, " B"]) -> Float[Tensor, "E c"]:
            positions = self.task.next_item_positions(columns[ITEM_ID], n_known)
            states = self._output_states(columns, positions) / temperature
            [every], _ = self.shard.all_gather(states)
            nonlocal held
            with phase("scores"):
                # The last row of `with_biases` holds the biases; the appended 1 adds them.
                every = pad(every, (0, 1), value=1.0)
                if not overwrites:
                    return every @ with_biases
                if len(held) < len(every):
                    held = every.new_empty(len(every), held.shape[1])
                return torch.mm(every, with_biases, out=held[: len(every)])

        return scores

    def scores_at(
        self, columns: Columns, n_known: Int[Tensor, " B"], items: Int[Tensor, "B K"]
    ) -> Float[Tensor, "B K"]:
        """Score K items (vocabulary indices) per session as `scorer` does; not with sharded rows.

        Gradients flow, dropout is off. Scores of reserved indices are meaningless.
        """
        if self.training:  # eval() visits all modules, which would slow down single live sessions
            self.eval()
        positions = self.task.next_item_positions(columns[ITEM_ID], n_known)
        states = self._output_states(columns, positions)
        with phase("scores"):
            scores = self.output_layer.scores_at(states, (items - N_RESERVED).clamp(min=0))
        return scores / self.loss_config.temperature

    @torch.no_grad()
    def attention(
        self, columns: Columns, n_known: Int[Tensor, " B"]
    ) -> tuple[list[Float[Tensor, "B H W W"]], Int[Tensor, " B"]]:
        """Each layer's attention weights when the next item is predicted, and the positions read.

        Raises:
            ConfigError: the backbone has none.
        """
        self.eval()
        positions = self.task.next_item_positions(columns[ITEM_ID], n_known)
        inputs = self._masked_inputs(
            columns, self.inputs.items(columns[ITEM_ID]), positions.is_masked
        )
        return self.body.attention_weights(inputs, positions.lengths), positions.lengths

    def _noisy(self, items: Int[Tensor, "B W"], rng: StepRandom) -> Int[Tensor, "B W"]:
        """Input items, some of them in training replaced or read as unknown."""
        config = self.config
        if self.training and config.swap_noise:
            items = swap_noise(items, rng, config.swap_noise)
        if self.training and config.unknown_rate and config.catalogue == "grow":
            items = hide_new_items(items, self.n_old_items, rng, config.unknown_rate)
        return items

    def negatives(self, rng: StepRandom) -> Negatives | None:
        """Return negatives for every target of the global batch; None for the full softmax."""
        if self.sampler is None or not self.loss.is_sampled:
            return None
        targets = rng.global_items.new_empty(0)
        if self.loss_config.negatives_of_batch:
            targets = self._global_labels(rng)[0] - N_RESERVED
        return self.sampler(targets, rng)

    def _detection_loss(
        self,
        columns: Columns,
        positions: PredictionPositions,
        states: States,
        rng: StepRandom,
        length_groups: int,
    ) -> Float[Tensor, ""]:
        """Sum over events of the discriminator's loss on the generator's samples.

        Weighted by the global batch's targets per event: the trainer divides by the number of
        targets, or their worth, which gives the mean over events that may be predicted (Clark et
        al. 2020, equation 3).
        """
        assert self.detector is not None
        items, (labels, total) = columns[ITEM_ID], self._global_labels(rng)
        offsets = rng.uniform("guess")[positions.is_masked]
        samples = self._samples(states, to_device(offsets, states.device), labels, rng)
        is_event = rng.targets_among(session_events(items, positions.lengths, rng))
        is_masked, items = (to_device(t, states.device) for t in (positions.is_masked, items))
        replaced = items.masked_scatter(is_masked, samples)
        detected = PredictionPositions(positions.lengths, torch.zeros_like(is_event), is_event)
        read = {**columns, ITEM_ID: replaced}
        states = self._states(read, detected, length_groups)
        loss: Tensor = self.detector(states, _chosen(replaced != items, is_event))
        whole, lengths = rng.for_global_batch(), _lengths(rng.global_items)
        every = whole.targets_among(session_events(rng.global_items, lengths, whole))
        return self.task_config.rtd_discriminator_weight * loss * total / every.sum().clamp(min=1)

    @torch.no_grad()
    def _samples(
        self, states: States, offsets: Float[Tensor, " T"], labels: Labels, rng: StepRandom
    ) -> Int[Tensor, " T"]:
        """The generator's samples, from the catalogue or the global batch's labels alone."""
        config = self.loss_config
        states = states / config.temperature
        layer = self.output_layer.at_temperature(config.temperature)
        items = None
        if self.task_config.rtd_replacements == "batch":
            items = to_device(torch.unique(labels), states.device)
            layer = OutputLayer(*layer.rows(items - N_RESERVED), len(items))
        samples: Tensor = generator_samples(states, layer, offsets, rng, config.logits_mib)
        return samples + N_RESERVED if items is None else items[samples]

    def _global_labels(self, rng: StepRandom) -> tuple[Labels, float]:
        """Return the targets of the global batch, and their number or worth."""
        items, whole = rng.global_items, rng.for_global_batch()
        positions, labels = self.task.training_positions(items, _lengths(items), whole)
        if WORTH not in rng.global_marks:
            return labels, len(labels)
        return labels, float(self.task.at_targets(rng.global_marks[WORTH], positions).sum())

    @in_phase("body")
    def _output_states(
        self, columns: Columns, positions: PredictionPositions, length_groups: int = 1
    ) -> States:
        """Input of the output layer at each predicted position."""
        states: Tensor = self.project_out(self._states(columns, positions, length_groups))
        return states

    def _states(
        self, columns: Columns, positions: PredictionPositions, length_groups: int
    ) -> Float[Tensor, "T D"]:
        """Hidden states at the predicted positions, in row-major order."""
        columns = {name: to_device(each, self.bias.device) for name, each in columns.items()}
        if positions.is_hidden is None and self.body.packs_on(self.bias.device):
            return self._packed_states(columns, positions)
        states = []
        sizes = group_sizes(positions.lengths, length_groups)
        parts = {name: torch.split(values, sizes) for name, values in columns.items()}
        items = torch.split(self.inputs.items(columns[ITEM_ID]), sizes)
        rows = torch.arange(len(positions.lengths), device=positions.lengths.device)
        for n, part_rows in enumerate(torch.split(rows, sizes)):
            part = positions.part(part_rows)
            part_columns = {name: values[n] for name, values in parts.items()}
            inputs = self._masked_inputs(part_columns, items[n], part.is_masked)
            states.append(_predicted_states(self.body, inputs, part))
        return torch.cat(states)

    def _packed_states(
        self, columns: Columns, positions: PredictionPositions
    ) -> Float[Tensor, "T D"]:
        """As `_states`, by a backbone that reads several sessions in each row."""
        width = positions.is_predicted.shape[1]
        packed = self.body.pack(positions.lengths, positions.is_predicted)
        rows = {name: packed.pack(values[:, :width]) for name, values in columns.items()}
        items, is_masked = self.inputs.items(rows[ITEM_ID]), packed.pack(positions.is_masked)
        states = self.body.forward_packed(self._masked_inputs(rows, items, is_masked), packed)
        return packed.take(states, positions.is_predicted)

    def _masked_inputs(
        self, columns: Columns, items: Float[Tensor, "B L d"], is_masked: Bool[Tensor, "B W"]
    ) -> Float[Tensor, "B W D"]:
        """Backbone inputs of the first W events, with the mask vector in place."""
        width = is_masked.shape[1]
        cut = {name: values[:, :width] for name, values in columns.items()}
        inputs: Tensor = self.inputs(cut, items[:, :width])
        if self.task.attention == "causal":  # nothing is masked
            return inputs
        return torch.where(to_device(is_masked, inputs.device)[..., None], self.mask, inputs)


def _lengths(items: Int[Tensor, "G L"]) -> Int[Tensor, " G"]:
    return (items != PADDING).sum(1)


def _predicted_states(
    backbone: Backbone, inputs: Float[Tensor, "B W D"], positions: PredictionPositions
) -> Float[Tensor, "T D"]:
    """Hidden states at the predicted positions, by the query stream where events are hidden."""
    lengths = to_device(positions.lengths, inputs.device)
    if positions.is_hidden is None:
        return _chosen(backbone(inputs, lengths), positions.is_predicted)
    n_predicted = positions.is_predicted.sum(1)
    # Stable: predicted positions keep their order, which is that of the labels.
    first = positions.is_predicted.int().argsort(stable=True, dim=1, descending=True)
    queries = first[:, : max(1, int(n_predicted.max()))]  # [B, M], the predicted positions first
    is_hidden, wanted = (to_device(each, inputs.device) for each in (positions.is_hidden, queries))
    states = backbone.query_stream(inputs, lengths, is_hidden, wanted)
    return _chosen(states, is_before(n_predicted, queries))


def _chosen(values: Float[Tensor, "B W ..."], is_chosen: Bool[Tensor, "B W"]) -> Tensor:
    """The values where `is_chosen`, which may be on the CPU."""
    # Not values[is_chosen]: for its size the host would wait for the GPU.
    index = is_chosen.flatten().nonzero().squeeze(1)
    return values.flatten(0, 1).index_select(0, to_device(index, values.device))
