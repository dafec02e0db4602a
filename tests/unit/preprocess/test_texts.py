"""Vectors of texts: as a dense computation has them, and the same when they are read again."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from dayahead.preprocess.texts import TextEncoder, unit_length

TEXTS = ["red shoe", "red hat", "blue shoe of suede", "hat with a feather", "red red boat", None]


def column(texts):
    return pa.chunked_array([pa.array(texts, pa.string())])


def test_cosines_are_those_of_a_dense_svd():
    vectors = TextEncoder.fit(column(TEXTS), 3).vectors(column(TEXTS))
    weights = TfidfVectorizer().fit_transform(TEXTS[:-1]).toarray()
    _, _, right = np.linalg.svd(weights, full_matrices=False)
    expected = weights @ right[:3].T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors[:-1] @ vectors[:-1].T, expected @ expected.T, atol=1e-5)
    assert not vectors[-1].any()


def test_unknown_words_and_more_dimensions_than_words_are_zeros():
    encoder = TextEncoder.fit(column(["red shoe", "red"]), 8)
    vectors = encoder.vectors(column(["quite other words", "shoe", None]))
    assert vectors.shape == (3, 8)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [0, 1, 0], atol=1e-6)
    assert not vectors[:, 2:].any()


@pytest.mark.parametrize("texts", [[], [None], ["a", "!"]])
def test_without_a_word_all_is_zero(texts):
    assert (
        TextEncoder.fit(column(texts), 4).vectors(column(["red", None])).tolist() == [[0] * 4] * 2
    )


def test_it_is_read_as_it_was_written(tmp_path):
    encoder = TextEncoder.fit(column(TEXTS), 3)
    encoder.write(tmp_path)
    again = TextEncoder.read(tmp_path)
    np.testing.assert_array_equal(encoder.vectors(column(TEXTS)), again.vectors(column(TEXTS)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["weights.npz", "words.json"]


@given(st.lists(st.sampled_from([*TEXTS, "feather boat", "zzz"]), min_size=1), st.integers(0, 9))
def test_a_vector_does_not_depend_on_the_texts_beside_it(texts, cut):
    encoder = TextEncoder.fit(column(TEXTS), 3)
    parts = [encoder.vectors(column(part)) for part in (texts[:cut], texts[cut:])]
    np.testing.assert_array_equal(np.concatenate(parts), encoder.vectors(column(texts)))


def test_unit_length():
    found = unit_length(np.array([[3, 4], [0, 0], [1e-30, 0], [3e38, 0]], np.float32))
    np.testing.assert_allclose(found, [[0.6, 0.8], [0, 0], [1, 0], [1, 0]], rtol=1e-6)
