"""A network inside `memory`: fitted as without, read before its fit, carried on, the same twice."""

from unittest.mock import patch

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from dayahead.core.errors import ConfigError
from dayahead.core.prefixes import with_prefix
from dayahead.distributed.launch import run_processes
from dayahead.distributed.process import Rank
from dayahead.memory import clicks
from dayahead.model.building import build_model
from dayahead.model.next_item import NextItemModel
from dayahead.train.batches import LoadedBatches, Sessions
from dayahead.train.trainers import GradientTrainer
from support.memory_models import MEMORY_WITH_GPT2
from support.tiny_settings import (
    GRU4REC,
    compute_config,
    merge_sections,
    ranks_of,
    tiny_params,
    tiny_study,
    train_study,
)
from support.window_folders import (
    add_pasts,
    day,
    markov_days,
    tiny_statistics,
    write_window_folder,
)
from support.worker_studies import run_and_record

DAYS = markov_days(n_days=3, sessions_per_day=17, n_items=20)


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    return write_window_folder(tmp_path_factory.mktemp("windows"), DAYS, features=True)


@pytest.fixture
def noted_fits(monkeypatch):
    """Note in a list what a function returns of each fit of a network, before it."""

    def noted(look):
        found, fit = [], GradientTrainer.fit

        def fitted(self, window, epochs, on_step):
            found.append(look(self, epochs))
            return fit(self, window, epochs, on_step)

        monkeypatch.setattr(GradientTrainer, "fit", fitted)
        return found

    return noted


def weights_in(out):
    return with_prefix(load_file(out / "models" / "model.safetensors"), "weights.")


def check_network(windows, folder, inside, sections):
    """A network inside memory ends with the weights that it has alone."""
    alone = weights_in(train_study(windows, folder / "alone", sections))
    together = weights_in(train_study(windows, folder / "together", inside))
    of_network = with_prefix(together, "network.")
    assert of_network.keys() == alone.keys()
    assert all(torch.equal(value, alone[name]) for name, value in of_network.items())


@pytest.mark.parametrize(
    "sections",
    [
        {"model": {"dropout": 0.1, "unknown_rate": 0.5}},
        *(
            pytest.param(sections, marks=pytest.mark.slow)
            for sections in (
                {"loss": {"name": "sampled_softmax"}},
                {"model": {"features": ["category", "price"]}},
                {"training": {"protocol": "from_scratch", "epochs": 2}},
            )
        ),
    ],
    ids=["dropout", "sampled", "features", "from scratch"],
)
def test_the_network_is_fitted_as_it_would_be_alone(windows, tmp_path, sections):
    check_network(windows, tmp_path, merge_sections(sections, **MEMORY_WITH_GPT2), sections)


def test_gru4rec_reads_item_ids_alone_beside_categories(windows, tmp_path):
    inside = {"architecture": "memory", "network": "gru4rec", "features": ["category"]}
    check_network(windows, tmp_path, merge_sections(GRU4REC, model=inside), GRU4REC)


@pytest.mark.parametrize(("limit", "steps"), [(2, 2), (None, 6), (7, 6)])
def test_a_fit_of_the_network_is_cut_where_it_may_take_no_more_steps(
    windows, tmp_path, limit, steps
):
    """Of two epochs of 3 batches; the learning rate ends with the steps."""
    sections = {"training": {"epochs": 2, "batch_size": 6}}
    inside = merge_sections(sections, **MEMORY_WITH_GPT2)
    inside = merge_sections(inside, memory={"network_steps": limit})
    check_network(
        windows, tmp_path, inside, merge_sections(sections, training={"steps_per_window": steps})
    )


@pytest.mark.parametrize(("limit", "steps"), [(3, [2, 3]), (None, [4, 6]), (1, [1, 1])])
def test_the_copy_for_the_first_head_takes_half_the_steps(
    windows, tmp_path, noted_fits, limit, steps
):
    """Of two epochs of 3 batches, and of 2 on the half of the window."""
    found = noted_fits(GradientTrainer.n_steps)
    sections = {"training": {"epochs": 2, "batch_size": 6}, "memory": {"network_steps": limit}}
    train_study(windows, tmp_path, merge_sections(sections, **MEMORY_WITH_GPT2))
    assert found[:2] == steps


def test_the_head_reads_the_network_as_it_was_before_the_window(windows, tmp_path, noted_fits):
    """Fits and readings alternate; the first reading is of a copy fitted on half the window."""
    events = noted_fits(
        lambda trainer, epochs: ("fit", id(trainer.model), len(epochs[0].every_row))
    )
    read = NextItemModel.scores_at

    def scored(self, columns, n_known, items):
        if events[-1][:2] != ("read", id(self)):
            events.append(("read", id(self)))
        return read(self, columns, n_known, items)

    with patch.object(NextItemModel, "scores_at", scored):
        train_study(windows, tmp_path, MEMORY_WITH_GPT2)
    kinds = [event[0] for event in events]
    assert kinds == ["fit", "read", "fit", "read", "fit", "read", "fit"]
    copy, model = events[0][1], events[2][1]
    assert copy != model
    assert [event[1] for event in events] == [copy, copy, *[model] * 5]
    assert [event[2] for event in events if event[0] == "fit"] == [8, 17, 17, 17]


def test_the_networks_scores_are_evidence(windows, tmp_path):
    """The head gives them a weight, and without them ranks differ."""
    alone = train_study(windows, tmp_path / "alone", {"model": {"architecture": "memory"}})
    both = train_study(windows, tmp_path / "both", MEMORY_WITH_GPT2)
    assert not np.array_equal(ranks_of(alone, day(2)), ranks_of(both, day(2)))
    with_network, without = (weights_in(out)["memory.head.linear"] for out in (both, alone))
    assert len(with_network) == len(without) + 1
    assert with_network[-1] != 0


def test_scores_at_some_items_are_those_of_the_scorer():
    model = tiny_network(temperature=0.5)
    items = torch.tensor([[2, 3, 4, 5], [9, 8, 2, 0]])
    n_known, wanted = torch.tensor([4, 2]), torch.tensor([[5, 2], [31, 7]])
    columns = {"item_id": items}
    expected = model.scorer(torch.arange(2, 32))(columns, n_known)
    found = model.scores_at(columns, n_known, wanted)
    torch.testing.assert_close(found, expected.gather(1, wanted - 2))


def tiny_network(**loss):
    model = build_model(tiny_params({"loss": loss}), tiny_statistics(), {}, seed=1)
    model.grow({"item_id": 30})
    return model


@pytest.mark.slow
@pytest.mark.parametrize("is_end_to_end", [False, True])
def test_two_processes_agree_with_one(windows, tmp_path, is_end_to_end):
    """Two are stopped after the first window evaluated, and go on from the stored state."""
    own = {"training": {"epochs": 2}, "memory": {"end_to_end": is_end_to_end}}
    sections = merge_sections(own, **MEMORY_WITH_GPT2)
    for n_processes, lasts in ((1, [day(2)]), (2, [day(1), day(2)])):
        out = tmp_path / str(n_processes)
        for last in lasts:
            studies = {"study": tiny_study(windows, out / "study", sections, last=last)}
            run_processes(run_and_record, compute_config(processes=n_processes), studies, out)
    for window in (day(1), day(2)):
        one, two = (ranks_of(tmp_path / str(n) / "study", window) for n in (1, 2))
        assert np.array_equal(one, two)


def end_to_end(**sections):
    return merge_sections({"memory": {"end_to_end": True}}, **MEMORY_WITH_GPT2, **sections)


@pytest.mark.slow
def test_end_to_end_the_loss_of_the_head_fits_the_network(windows, tmp_path):
    """The task's own loss is never computed, and the network's weights change all the same."""
    still = end_to_end(training={"learning_rate": 1e-12, "weight_decay": 0.0})
    with patch.object(NextItemModel, "forward", side_effect=AssertionError):
        learned, kept = (
            weights_in(train_study(windows, tmp_path / name, sections))
            for name, sections in (("learned", end_to_end()), ("kept", still))
        )
    name = "network.inputs.items.weight"
    assert (learned[name] - kept[name]).abs().max() > 1e-3
    assert not torch.equal(learned["memory.head.linear"], kept["memory.head.linear"])


def loaded_and_streamed(windows, folder, sections):
    """Weights after the windows were read whole, and after they were read part by part."""
    with patch.object(clicks, "CLICKS", 20):
        for loader in ("memory", "stream"):
            chosen = {"training": {"loader": loader}, "evaluation": {"split": "test"}}
            yield weights_in(
                train_study(windows, folder / loader, merge_sections(sections, **chosen))
            )


@pytest.mark.long
@pytest.mark.parametrize(
    "sections",
    [
        {"model": {"network": "none"}},
        {"model": {"network": "none"}, "live": {"tick": "1h"}},
        {"model": {"features": ["category"]}, "memory": {"end_to_end": True}},
    ],
    ids=["alone", "ticks", "end to end"],
)
def test_streamed_windows_teach_the_same(windows, tmp_path, sections):
    chosen = merge_sections(MEMORY_WITH_GPT2, **sections)
    loaded, streamed = loaded_and_streamed(windows, tmp_path, chosen)
    assert loaded.keys() == streamed.keys()
    assert [name for name, each in loaded.items() if not torch.equal(each, streamed[name])] == []


@pytest.mark.long
@pytest.mark.parametrize("live", [{}, {"tick": "1h"}], ids=["windows", "ticks"])
def test_streamed_windows_teach_a_network_the_same(windows, tmp_path, live):
    """The head reads another copy of it for the first window, whose half is in other batches."""
    sections = merge_sections(MEMORY_WITH_GPT2, live=live)
    loaded, streamed = loaded_and_streamed(windows, tmp_path, sections)
    assert loaded.keys() == streamed.keys()
    differing = [name for name, each in loaded.items() if not torch.equal(each, streamed[name])]
    assert {name.split(".")[1] for name in differing} <= {"head", "moments", "replay"}


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"model": {"network": "vstan"}}, "network: vstan is none"),
        ({"model": {"network": "gtp2"}}, r"model\.network: gtp2 is unknown"),
        ({"model": {"network": "gru4rec", "features": ["price"]}}, "price: memory reads categ"),
    ],
)
def test_settings_that_do_not_suit_are_refused(windows, tmp_path, sections, message):
    sections = merge_sections(MEMORY_WITH_GPT2, **sections)
    with pytest.raises(ConfigError, match=message):
        train_study(windows, tmp_path, sections)


@pytest.mark.parametrize("network", ["none", pytest.param("gpt2", marks=pytest.mark.slow)])
def test_what_is_new_in_a_window_is_unknown_to_head_and_network(tmp_path, network):
    """As in evaluation: sessions of day 2 with new items teach as if these were unknown.

    So do their categories, whichever it is.
    """
    first = markov_days(n_days=1, sessions_per_day=30, n_items=10)[0]
    of_head = []
    for new in (70, 80):  # two items that day 2 brings, after which nothing is known
        second = [[1, new, 2], [new, 3, 1], [new, 4, 5]] * 10  # of one length: no ties of time
        folder = write_window_folder(
            tmp_path / str(new), [first, second, first], features=True, category_days=(0, 1, 1)
        )
        model = {"architecture": "memory", "network": network, "features": ["category"]}
        sections = {"model": model, "training": {"fit_last": False}}
        weights = weights_in(train_study(folder, tmp_path / f"out{new}", sections))
        of_head.append({n: v for n, v in weights.items() if n.startswith("memory.head")})
    assert all(torch.equal(value, of_head[1][name]) for name, value in of_head[0].items())


def test_new_items_are_read_as_unknown_before_their_fit(tmp_path):
    """The network is asked after prefixes without indices beyond those of the fit before."""
    days = [[[1, 2], [2, 1]] * 5, [[1, 9, 2], [9, 1]] * 5, [[1, 2]] * 5]
    folder = write_window_folder(tmp_path / "windows", days)
    highest = []
    read = NextItemModel.scores_at

    def scored(self, columns, n_known, items):
        highest.append(int(columns["item_id"].max()))
        return read(self, columns, n_known, items)

    sections = merge_sections({"evaluation": {"split": "all"}}, **MEMORY_WITH_GPT2)
    with patch.object(NextItemModel, "scores_at", scored):
        train_study(folder, tmp_path / "out", sections, last=day(1))
    # The head's first examples, evaluation of day 1 (whose new item is beyond the table), then its
    # examples of day 1.
    assert highest == [3, 4, 3]


@pytest.mark.parametrize("past", [[], [3, 4, 3]])
def test_the_early_copy_samples_negatives_by_its_own_half(tmp_path, noted_fits, past):
    """The targets of its sessions; the events of a user's past are none."""
    days = [[[1, 2]] * 8 + [[3, 4]] * 8, [[1, 2]] * 8]
    folder = write_window_folder(tmp_path / "windows", days, features=True)
    add_pasts(folder, [[past] * len(sessions) for sessions in days], longest=3)
    counts = noted_fits(lambda trainer, _: trainer.model.sampler.counts.tolist())
    sections = {"loss": {"name": "sampled_softmax"}, "model": {"past_length": 3}}
    sections = merge_sections(sections, **MEMORY_WITH_GPT2)
    train_study(folder, tmp_path / "out", sections, last=day(1))
    assert counts[0] == [0, 8, 0, 0]
    assert counts[1] == [0, 8, 0, 8]


def test_a_part_of_the_batches_keeps_their_order():
    flat = {"item_id": torch.arange(2, 10)}
    sessions = Sessions(flat, torch.tensor([0, 2, 4, 6, 8]))
    batches = LoadedBatches(
        sessions, [torch.tensor([3, 0]), torch.tensor([1]), torch.tensor([2])], Rank(1, 2)
    )
    part = batches.among(torch.tensor([0, 2]))
    assert [rows.tolist() for rows in part.rows] == [[0, 2]]
    assert batches.every_row.tolist() == [3, 0, 1, 2]
    assert batches.among(torch.tensor([], dtype=torch.int64)).n_steps == 0
    assert next(iter(batches.unsplit())).sessions.tolist() == [3, 0]
