"""Texts of items as vectors: TF-IDF, then truncated SVD, fitted once for a run and kept in it.

scikit-learn is imported where it is needed: few data sets have texts.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dayahead.core.files import read_json, write_json, written_whole

Floats32 = NDArray[np.float32]
MAX_WORDS = 50_000
"""Words that are counted at most, the most frequent ones."""
_TINY = 1e-6
"""Length below which what SVD leaves of a text is noise: texts have length 1 before it."""


@dataclass(frozen=True)
class TextEncoder:
    """Latent semantic analysis (Deerwester et al., 1990), with the defaults of scikit-learn.

    Words are runs of two or more letters and digits, in lower case.
    """

    words: list[str]
    idf: NDArray[np.float64]
    """Shape [words]: inverse document frequencies."""
    components: NDArray[np.float64]
    """Shape [dimensions, words]: right singular vectors, zeros where there are fewer."""

    @classmethod
    def fit(cls, texts: pa.ChunkedArray, dimensions: int) -> "TextEncoder":
        """Fit on texts; nulls count for nothing."""
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.utils.extmath import randomized_svd

        vectorizer = TfidfVectorizer(max_features=MAX_WORDS)
        known = texts.drop_null().to_pylist()
        try:
            weights = vectorizer.fit_transform(known)
        except ValueError:  # no text has a word
            return cls([], np.zeros(0), np.zeros((dimensions, 0)))
        rank = min(dimensions, *weights.shape)
        # The sign of each component is that of svd_flip, so it does not depend on chance.
        _, _, found = randomized_svd(weights, rank, random_state=0)
        components = np.zeros((dimensions, weights.shape[1]))
        components[:rank] = found
        return cls(list(vectorizer.get_feature_names_out()), vectorizer.idf_, components)

    def vectors(self, texts: pa.ChunkedArray) -> Floats32:
        """Encode texts, shape [texts, dimensions], of unit length; zeros where no word is known."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        encoded = np.zeros((len(texts), len(self.components)))
        known = texts.is_valid().to_numpy()
        if self.words and known.any():
            vectorizer = TfidfVectorizer(vocabulary=self.words)
            vectorizer.idf_ = self.idf
            encoded[known] = vectorizer.transform(texts.drop_null().to_pylist()) @ self.components.T
        return unit_length(encoded, _TINY)

    def write(self, folder: Path) -> None:
        """Write words.json and weights.npz."""
        write_json(folder / "words.json", self.words)
        with written_whole(folder / "weights.npz") as temporary, temporary.open("wb") as file:
            np.savez(file, idf=self.idf, components=self.components)

    @classmethod
    def read(cls, folder: Path) -> "TextEncoder":
        """Read what `write` wrote."""
        with np.load(folder / "weights.npz") as weights:
            return cls(read_json(folder / "words.json"), weights["idf"], weights["components"])


def unit_length(vectors: NDArray[Any], least: float = 0.0) -> Floats32:
    """Divide vectors, shape [n, dimensions], by their length; those of at most `least` become 0."""
    length = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    scaled = np.divide(vectors, length, out=np.zeros(vectors.shape), where=length > least)
    return np.asarray(scaled, np.float32)
