"""Negative sampling: how often items are sampled, and that all processes sample the same."""

from itertools import combinations

import pytest
import torch

from dayahead.config.loading import validated
from dayahead.config.model import LossConfig
from dayahead.core.errors import ConfigError
from dayahead.distributed.process import Rank
from dayahead.model.losses import SAMPLED_LOSSES, Negatives, NegativeSampler
from dayahead.model.rng import StepRandom
from dayahead.train.batches import Sessions
from support.tiny_settings import (
    LOSS,
    columns_of,
    loss_config,
    loss_of,
    step_random,
    tiny_model,
)

SESSIONS = [[2, 3, 4], [5, 6, 7, 8, 9], [9, 3], [11, 12, 13, 2], [2, 2, 5]]
N_ITEMS = 30
EVENTS = torch.tensor([item for session in SESSIONS for item in session])


def sampler_of(counts, **changes):
    sampler = NegativeSampler(loss_config(name="sampled_softmax", **changes))
    sampler.set_counts(torch.tensor(counts))
    return sampler


def model_of(name="sampled_softmax", task="clm", architecture="gpt2", **changes):
    model = tiny_model(architecture, task, n_items=N_ITEMS, loss={"name": name, **changes})
    if model.sampler is not None:
        model.sampler.set_counts(torch.bincount(EVENTS - 2, minlength=N_ITEMS))
    return model


def batch_of(rank):
    """A process's rows of SESSIONS: columns, lengths and random numbers."""
    lengths = torch.tensor([0, *map(len, SESSIONS)])
    batch = Sessions({"item_id": EVENTS}, lengths.cumsum(0)).gather(torch.arange(5), rank)
    rows = torch.arange(batch.n_global)[rank.index :: rank.world_size]
    items = batch.global_items
    rng = StepRandom(3, items, batch.global_past, rows, items.shape[1])
    return columns_of(batch.columns["item_id"]), batch.lengths, rng


def some_rng(seed=0):
    return step_random(torch.zeros(1, 1, dtype=torch.int64), seed)


class TestSampler:
    @pytest.mark.parametrize(
        ("exponent", "weights"), [(0.0, [1, 1, 1, 1]), (0.5, [1, 2, 3, 4]), (1.0, [1, 4, 9, 16])]
    )
    def test_samples_by_one_more_than_the_count_to_the_power(self, exponent, weights):
        n = 40_000
        sampler = sampler_of([0, 3, 8, 15], popularity_exponent=exponent, negatives=n)
        negatives = sampler(torch.empty(0, dtype=torch.int64), some_rng())
        expected = n * torch.tensor(weights) / sum(weights)
        sampled = torch.bincount(negatives.items, minlength=4)
        assert ((sampled - expected).abs() < 4 * expected.sqrt()).all()
        torch.testing.assert_close(
            negatives.log_expected, expected.log()[negatives.items], rtol=1e-4, atol=1e-4
        )

    def test_in_batch_negatives_count_as_sampled_by_popularity(self):
        """Three others among the four targets, of 25 others of the fit: 3 count / 25 each."""
        sampler = sampler_of([0, 3, 8, 15], popularity_exponent=0.0, negatives=2)
        targets = torch.tensor([3, 3, 1, 2])
        negatives = sampler(targets, some_rng())
        assert negatives.items[2:].tolist() == targets.tolist()
        wanted = [2 / 4 + 3 * count / 25 for count in (15, 15, 3, 8)]
        assert negatives.log_expected[2:].exp().tolist() == pytest.approx(wanted)

    def test_depends_on_the_seed_alone(self):
        sampler, none = sampler_of([1] * 100, negatives=50), torch.empty(0, dtype=torch.int64)
        first, again, other = (sampler(none, some_rng(seed)).items for seed in (1, 1, 2))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)

    def test_without_samples_there_are_those_of_the_batch(self):
        sampler = sampler_of([1, 2], negatives=0)
        assert sampler(torch.tensor([1]), some_rng()).items.tolist() == [1]
        assert torch.isfinite(sampler(torch.tensor([1, 0]), some_rng()).log_expected).all()

    @pytest.mark.parametrize(("exponent", "of_batch"), [(0.0, False), (0.7, False), (0.7, True)])
    def test_the_correction_makes_the_sampled_softmax_estimate_the_full_one(
        self, exponent, of_batch
    ):
        """Many negatives, among which popular items of high score are far too frequent."""
        generator = torch.Generator().manual_seed(0)
        counts = 1 + torch.arange(40) ** 2
        settings = {"popularity_exponent": exponent, "negatives": 40_000}
        sampler = sampler_of(counts.tolist(), **settings)
        n_of_batch = 40_000 if of_batch else 0
        batch = torch.multinomial(
            counts.float(), n_of_batch or 1, replacement=True, generator=generator
        )
        negatives = sampler(batch[:n_of_batch], some_rng())
        hidden, table = (torch.randn(n, 6, generator=generator) for n in (20, 40))
        bias, targets = torch.linspace(-2, 2, 40), torch.arange(20)
        args = (hidden, table, bias, targets)
        found = loss_of(loss_config(name="sampled_softmax"), *args, negatives)
        full = loss_of(loss_config(), *args, None)
        assert found.item() == pytest.approx(full.item(), rel=0.01)
        flat = Negatives(negatives.items, torch.full_like(negatives.log_expected, 1000).log())
        uncorrected = loss_of(loss_config(name="sampled_softmax"), *args, flat)
        assert exponent == 0.0 or uncorrected.item() > 1.02 * full.item()


WINDOW_TARGETS = torch.tensor([0, 2, 3, 3, 4, 4, 4])
BEFORE = torch.tensor([90, 60, 5, 0, 0])
"""Earlier events of the same items: 0 and 1 were popular and are rare now, 3 and 4 are new."""


def estimate_over_truth(sampler, own, n_batch):
    """The estimated sum over items but target `own`, over the true sum; the mean over all batches.

    The batches are all those of WINDOW_TARGETS with this target. Without samples, both sums are
    over the window's targets alone.
    """
    scores = torch.tensor([1.0, -0.5, 0.3, 1.2, 2.0]).double()
    others = [index for index in range(len(WINDOW_TARGETS)) if index != own]
    batches = [WINDOW_TARGETS[[own, *rest]] for rest in combinations(others, n_batch - 1)]
    counts = [torch.bincount(batch[1:], minlength=5) for batch in batches]
    weights = (1 + sampler.counts).double() ** sampler.config.popularity_exponent
    occurrences = torch.stack(counts).double().mean(0)
    occurrences += sampler.config.negatives * weights / weights.sum()
    expected = torch.full((5,), torch.inf).double()
    for batch in batches:
        negatives = sampler(batch, some_rng())
        expected[negatives.items] = negatives.log_expected.double().exp()
    is_summed = (occurrences > 0) & (torch.arange(5) != WINDOW_TARGETS[own])
    terms = scores.exp()[is_summed]
    return float((terms * (occurrences / expected)[is_summed]).sum() / terms.sum())


@pytest.mark.parametrize("n_negatives", [0, 60])
@pytest.mark.parametrize("n_batch", [2, 4])
@pytest.mark.parametrize("own", range(len(WINDOW_TARGETS)))
def test_the_estimate_has_no_bias_in_a_window_unlike_those_before(n_negatives, n_batch, own):
    counts = torch.bincount(WINDOW_TARGETS, minlength=5)
    sampler = sampler_of(counts.tolist(), negatives=n_negatives)
    assert estimate_over_truth(sampler, own, n_batch) == pytest.approx(1.0, rel=1e-4)
    stale = sampler_of((counts + BEFORE).tolist(), negatives=n_negatives)
    assert estimate_over_truth(stale, own, n_batch) > (1.001 if n_negatives else 3)


class TestModel:
    def test_softmax_needs_no_counts(self):
        assert model_of("softmax").sampler is None

    def test_the_counts_are_of_a_fit_and_not_in_the_state(self):
        assert not [name for name in model_of().state_dict() if "sampler" in name]

    @pytest.mark.parametrize("task", ["clm", "mlm"])
    def test_in_batch_negatives_are_the_targets_of_all_processes(self, task):
        whole = model_of(task=task, architecture="bert", negatives=0)
        columns, lengths, rng = batch_of(Rank(0, 1))
        _, labels = whole.task.training_positions(columns["item_id"], lengths, rng)
        for rank in (Rank(0, 1), Rank(0, 2), Rank(1, 2)):
            _, _, rng = batch_of(rank)
            assert whole.negatives(rng).items.tolist() == (labels - 2).tolist()

    @pytest.mark.parametrize("name", ["softmax", "sampled_softmax", *SAMPLED_LOSSES])
    @pytest.mark.parametrize("task", ["clm", "mlm"])
    def test_two_processes_sum_to_one(self, name, task):
        """Five sessions on two processes, one of which has an empty row."""
        shares = {1: [Rank(0, 1)], 2: [Rank(0, 2), Rank(1, 2)]}
        found = {}
        for world, ranks in shares.items():
            models = [model_of(name, task, architecture="bert").train() for _ in ranks]
            losses = [model(*batch_of(rank), 2) for model, rank in zip(models, ranks, strict=True)]
            for loss, _ in losses:
                loss.backward()
            named = [dict(model.named_parameters()) for model in models]
            found[world] = {
                "loss": sum(loss for loss, _ in losses).detach(),
                "n_targets": sum(n for _, n in losses),
                **{
                    key: sum(parameters[key].grad for parameters in named)
                    for key, parameter in named[0].items()
                    if parameter.requires_grad
                },
            }
        torch.testing.assert_close(found[1], found[2], rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("name", ["softmax", "sampled_softmax"])
    def test_the_temperature_divides_the_scores_and_keeps_the_ranks(self, name):
        warm, cold = model_of(name, temperature=4.0), model_of(name)
        columns, n_known = columns_of(torch.tensor([[3, 4, 5, 0]])), torch.tensor([3])
        every = torch.arange(2, 2 + N_ITEMS)
        scores = [model.scorer(every)(columns, n_known) for model in (warm, cold)]
        torch.testing.assert_close(scores[0] * 4, scores[1])
        assert torch.equal(scores[0].argsort(), scores[1].argsort())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"name": "bpr", "negatives": 0, "negatives_of_batch": False},
            r"bpr needs negatives, and there are none: set negatives above 0 or "
            r"negatives_of_batch to true, or name to softmax",
        ),
        (
            {"name": "gbce", "label_smoothing": 0.1},
            r"label_smoothing \(0.1\).*gbce has none: set label_smoothing to 0, or name to "
            r"softmax or sampled_softmax",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_rejected(changes, message):
    with pytest.raises(ConfigError, match=message):
        validated(LossConfig, LOSS | changes, "loss")


@pytest.mark.parametrize(("budget", "wanted"), [("auto", [96, 12, 96, 2048]), (7, [7, 7, 7, 7])])
def test_an_automatic_budget_of_a_softmax_depends_on_device_and_dtype(budget, wanted):
    config = loss_config(logits_budget_mib=budget)
    of_softmax = [
        config.softmax_mib(device, in_bfloat16=in_bfloat16)
        for device, in_bfloat16 in (("cpu", False), ("cpu", True), ("cuda", True))
    ]
    assert [config.logits_mib, *of_softmax] == wanted
