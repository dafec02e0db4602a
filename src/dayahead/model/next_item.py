"""The next-item model: embeddings, a body from the zoo, scores over the catalogue held."""

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dayahead.config.params import LossConfig, ModelConfig, TaskConfig
from dayahead.core.columns import ITEM_ID, N_RESERVED, PADDING
from dayahead.core.errors import ConfigError
from dayahead.core.seeds import derived_seed
from dayahead.distributed.sharding import WHOLE, Shard
from dayahead.model.backbones import Body
from dayahead.model.embeddings import GrowingEmbedding
from dayahead.model.inputs import EventInputs
from dayahead.model.losses import catalogue_loss
from dayahead.model.negatives import Negatives, NegativeSampler
from dayahead.model.noise import swapped
from dayahead.model.output import OutputLayer
from dayahead.model.plm import asked_states
from dayahead.model.prediction_positions import Question, everywhere
from dayahead.model.projection import projection
from dayahead.model.rng import StepRandom
from dayahead.model.rtd import bodies, guesses
from dayahead.model.scoring import Scorer
from dayahead.model.tasks import build_task


class NextItemModel(nn.Module):
    """Scores every item held as the next of a session.

    Built empty of items: `grow` gives it its catalogue.

    Args:
        config: architecture and sizes.
        task: decides what the body may see.
        loss: what the scores of a target are compared with.
        categoricals: side feature to the number of values its embedding's size is made for.
        numbers: window-file columns that hold numbers, and the kinds of their features.
        max_length: longest session, target included.
        seed: root of every initial value.
        shard: which rows of the tables of items, and of their bias, this process holds.
    """

    def __init__(  # noqa: PLR0913
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
        self.shard = shard
        self.task = build_task(task)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derived_seed(seed, "weights"))
            self.inputs = EventInputs(config, categoricals, numbers, seed, shard)
            self.mask = nn.Parameter(torch.randn(config.d_model) * config.init_std)
            self.mask.requires_grad_(self.task.needs == "bidirectional")
            self.body, self.detector = bodies(config, task, self.task.needs, max_length)
            self.project_out = projection(config.d_model, config.item_dim, config.activation)
        if not config.tie_weights:
            self.output_items = _output_table(config.item_dim, config.item_init_std, seed, shard)
        self.sampler = NegativeSampler(loss) if loss.is_sampled else None
        self.bias = nn.Parameter(torch.empty(0))

    @property
    def n_items(self) -> int:
        """Items held."""
        return self.inputs.items.n_rows

    @property
    def scoring_rows(self) -> Float[Tensor, "n d"]:
        """Own rows of what scores are products with: the input's table, or another if untied."""
        return self.inputs.items.weight if self.config.tie_weights else self.output_items.weight

    @property
    def catalogue(self) -> OutputLayer:
        """What the items held are scored with."""
        return OutputLayer(self.scoring_rows, self.bias, self.n_items, self.shard)

    @property
    def sharded(self) -> frozenset[str]:
        """Names of the parameters whose rows are shared out over the processes."""
        if self.shard.is_whole:
            return frozenset()
        tables = {"inputs.items.weight", "output_items.weight", "bias"}
        return frozenset(tables.intersection(name for name, _ in self.named_parameters()))

    def grow(self, sizes: dict[str, int]) -> None:
        """Hold the first `sizes[column]` values of each vocabulary; old rows stay as they are.

        Raises:
            ConfigError: there are fewer items than processes to share them out to.
        """
        n_items = sizes[ITEM_ID]
        if n_items < self.shard.world_size:
            raise ConfigError(
                f"params.yaml: compute.shard_items: {n_items} items cannot be shared out to "
                f"{self.shard.world_size} processes; set it to false"
            )
        self.inputs.grow(sizes)
        if not self.config.tie_weights:
            self.output_items.grow(n_items)
        if self.sampler:
            self.sampler.grow(n_items)
        n_new = self.shard.n_local(n_items) - len(self.bias)
        if n_new > 0:
            self.bias = nn.Parameter(nn.functional.pad(self.bias.detach(), (0, n_new)))

    def forward(
        self,
        columns: Mapping[str, Tensor],
        lengths: Int[Tensor, " B"],
        draws: StepRandom,
        length_groups: int = 1,
    ) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
        """Sum of the loss over this batch's targets, and how many there are.

        The batch goes through the body in `length_groups` parts, each cut to its own longest
        session; where the shorter come first, little padding is left.
        """
        question, answers = self.task.training_question(columns[ITEM_ID], lengths, draws)
        read = columns
        if self.training and self.config.swap_noise:  # after the answers are known
            noisy = swapped(columns[ITEM_ID], draws, self.config.swap_noise)
            read = {**columns, ITEM_ID: noisy}
        hidden = self._answers(read, question, length_groups)
        loss = catalogue_loss(
            self.loss_config,
            hidden,
            self.catalogue,
            answers - N_RESERVED,
            self._negatives(draws),
        )
        if self.detector is not None:
            detection = self._detection_loss(columns, question, hidden, draws, length_groups)
            loss = self.task_config.rtd_generator_weight * loss + detection
        return loss, torch.tensor(len(answers), device=loss.device)

    def scorer(self, candidates: Int[Tensor, " C"]) -> Scorer:
        """Return what scores the candidates (catalogue indices), in float32, dropout off.

        Where rows are shared out, it scores those held here, for the sessions of all processes.
        """
        self.eval()
        rows = candidates.to(self.bias.device) - N_RESERVED
        own = self.catalogue.detached().own_part(rows)

        @torch.no_grad()
        def scores(
            columns: Mapping[str, Tensor], n_known: Int[Tensor, " B"]
        ) -> Float[Tensor, "E c"]:
            question = self.task.next_question(columns[ITEM_ID], n_known)
            [every], _ = self.shard.all_gather(self._answers(columns, question))
            return own.own_scores(every) / self.loss_config.temperature

        return scores

    @torch.no_grad()
    def attention(
        self, columns: Mapping[str, Tensor], n_known: Int[Tensor, " B"]
    ) -> tuple[list[Float[Tensor, "B H W W"]], Int[Tensor, " B"]]:
        """Each layer's attention weights where the next item is scored, and the positions read.

        Raises:
            ConfigError: the body has none.
        """
        self.eval()
        question = self.task.next_question(columns[ITEM_ID], n_known)
        inputs = self._read(columns, self.inputs.items(columns[ITEM_ID]), question, slice(None))
        return self.body.attention_weights(inputs, question.lengths), question.lengths

    def _negatives(self, draws: StepRandom) -> Negatives | None:
        """What every target of the global batch is compared with; None: the whole catalogue."""
        if not self.sampler:
            return None
        if self.training:
            self.sampler.count(draws)
        targets = draws.items.new_empty(0)
        if self.loss_config.negatives_of_batch:
            targets = self._global_answers(draws) - N_RESERVED
        negatives: Negatives = self.sampler(targets, draws)
        return negatives

    def _answers(
        self, columns: Mapping[str, Tensor], question: Question, length_groups: int = 1
    ) -> Float[Tensor, "T d"]:
        """What is scored with the item table, at each asked position."""
        answers: Tensor = self.project_out(self._hidden(columns, question, length_groups))
        return answers

    def _detection_loss(
        self,
        columns: Mapping[str, Tensor],
        question: Question,
        hidden: Float[Tensor, "T d"],
        draws: StepRandom,
        length_groups: int,
    ) -> Float[Tensor, ""]:
        """Sum over events of finding the generator's guesses out.

        Weighed by the global batch's targets per event: the mean over events that the sum over
        targets becomes when it is divided by their number (Clark et al. 2020, equation 3).
        """
        assert self.detector is not None
        items = columns[ITEM_ID]
        answers = self._global_answers(draws)
        guessed = self._guesses(hidden, draws.uniform("guess")[question.is_masked], answers, draws)
        changed = items.masked_scatter(question.is_masked, guessed)
        every = everywhere(items, question.lengths, draws)
        read = {**columns, ITEM_ID: changed}
        states = self._hidden(read, every, length_groups, self.detector.body)
        loss: Tensor = self.detector(states, (changed != items)[every.is_asked])
        n_events = ((draws.items != PADDING).sum() - draws.past.sum()).clamp(min=1)
        return self.task_config.rtd_discriminator_weight * loss * len(answers) / n_events

    def _guesses(
        self,
        hidden: Float[Tensor, "T d"],
        places: Float[Tensor, " T"],
        answers: Int[Tensor, " A"],
        draws: StepRandom,
    ) -> Int[Tensor, " T"]:
        """Items drawn by their scores, from the catalogue or the global batch's answers alone."""
        items, config = None, self.loss_config
        catalogue = self.catalogue.detached().at_temperature(config.temperature)
        if self.task_config.rtd_replacements == "batch":
            items = torch.unique(answers) - N_RESERVED
            catalogue = catalogue.part(items)
        states, budget = hidden / config.temperature, config.logits_budget_mib
        found = guesses(states, catalogue, places, draws, logits_budget_mib=budget)
        return (found if items is None else items[found]) + N_RESERVED

    def _global_answers(self, draws: StepRandom) -> Int[Tensor, " A"]:
        """What the task asks for in the whole global batch, catalogue indices."""
        lengths = (draws.items != PADDING).sum(1)
        return self.task.training_question(draws.items, lengths, draws.whole())[1]

    def _hidden(
        self,
        columns: Mapping[str, Tensor],
        question: Question,
        length_groups: int,
        body: Body | None = None,
    ) -> Float[Tensor, "T D"]:
        """What the body writes at each asked position, row by row."""
        hidden = []
        every = torch.arange(len(question.lengths), device=question.lengths.device)
        items = self.inputs.items(columns[ITEM_ID]).chunk(length_groups)
        for rows, of_rows in zip(every.chunk(length_groups), items, strict=True):
            part = question.part(rows)
            inputs = self._read(columns, of_rows, part, rows)
            hidden.append(asked_states(body or self.body, inputs, part))
        return torch.cat(hidden)

    def _read(
        self,
        columns: Mapping[str, Tensor],
        items: Float[Tensor, "b L d"],
        question: Question,
        rows: Tensor | slice,
    ) -> Float[Tensor, "b W D"]:
        """What the body is given of some rows, for their items and their part of a question."""
        width = question.is_asked.shape[1]
        cut = {name: values[rows, :width] for name, values in columns.items()}
        inputs = self.inputs(cut, items[:, :width])
        return torch.where(question.is_masked[..., None], self.mask, inputs)


def _output_table(item_dim: int, std: float, seed: int, shard: Shard) -> GrowingEmbedding:
    """Rows that score and are never looked up, so that none of them is unknown."""
    table = GrowingEmbedding(
        item_dim, std, derived_seed(seed, "table", "output_items"), shard=shard
    )
    table.unknown.requires_grad_(False)
    return table
