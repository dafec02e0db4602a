"""Vocabularies and sizes that contradict config.json: refused before anything is made for them."""

import resource

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dayahead.config.baselines import MEMORY
from dayahead.core.columns import TIMESTAMP
from dayahead.core.errors import ModelFileError
from dayahead.model.checkpoint import load_model
from support.stored_models import edited, save, stored, vocabulary


def of(name, values):
    """The vocabulary of 30 values with another column, or without it."""
    table = vocabulary(30)
    position = table.schema.get_field_index(name)
    if values is None:
        return table.remove_column(position)
    return table.set_column(position, name, values)


@pytest.mark.parametrize(
    "damaged",
    [
        of("value", pa.nulls(30, pa.int64())),
        of("value", pa.array([None, *range(29)], pa.int64())),
        of("value", pa.array([7] * 30, pa.int64())),
        of("value", pa.array([str(n) for n in range(30)])),
        of("value", pa.array(range(30), pa.float64())),
        of("value", None),
        of("index", pa.array(range(30), pa.int32())),
        of("index", pa.array([2**31 - 1] * 30, pa.int32())),
        of("index", pa.array(range(2, 32), pa.int64())),
        of("first_time", pa.nulls(30, TIMESTAMP)),
        of("first_time", pa.array(range(30), pa.int64())),
    ],
    ids=str,
)
def test_a_vocabulary_that_contradicts_the_config_file_is_rejected(tmp_path, damaged):
    save(tmp_path, stored("gpt2", "clm"))
    pq.write_table(damaged, tmp_path / "vocabulary" / "item_id.parquet")
    with pytest.raises(ModelFileError, match=r"item_id\.parquet|'item_id'|index|value"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("section", "name", "size"),
    [
        ("model", "d_model", 10**9),
        ("model", "d_model", 65_536),
        ("model", "item_embedding_dim", 65_536),
        ("model", "n_layer", 1_000),
        ("model", "config", {"n_inner": 10**8}),
        ("model", "config", {"vocab_size": 10**8}),
        ("model", "past_length", 65_536),
        ("model", "soft_one_hot", 65_536),
        ("model", "number_dim", 65_536),
        ("model", "embedding_multiplier", 1e6),
        ("sizes", "item_id", 10**12),
        ("first_sizes", "category", 10**18),
    ],
)
def test_no_size_of_the_config_file_makes_room_for_more_than_the_tensors(
    tmp_path, section, name, size
):
    """The tensors hold some 4,000 numbers; a limit of 2 GiB more ends what allocates them."""
    save(tmp_path, stored("gpt2", "clm", number_dim=2, soft_one_hot=3))
    edited(tmp_path, lambda config: config[section].update({name: size}))
    held = resource.getrlimit(resource.RLIMIT_AS)
    used = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**31, held[1]))
    try:
        with pytest.raises(ModelFileError) as refused:
            load_model(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, held)
    assert "memory" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("name", "size"), [("head_width", 99), ("n_candidates", 999)])
def test_sizes_of_the_memory_are_those_of_its_tensors(tmp_path, name, size):
    """Of the examples to replay too, which are not read to serve."""
    save(tmp_path, stored(MEMORY, "clm"))
    edited(tmp_path, lambda config: config["memory"].update({name: size}))
    with pytest.raises(ModelFileError, match="expected the shape"):
        load_model(tmp_path, to_fit=False)
