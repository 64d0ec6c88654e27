"""Which language is this text in? A classifier on the CPU, its weights inside the package `langid`.

    pip install langid
    batchyard agent --engine python \
        --engine-option callable=classifier:LanguageClassifier \
        --engine-option path=examples/language_classifier \
        --engine-option max_batch_size=64 --engine-option "task_types=[classification]"

A batch is one product of matrices instead of one product of a vector with the same 2.9 MB for each
text: see measure.py for what that gains.
"""

from collections.abc import Sequence

import numpy as np
from langid import langid

from node_agent.engines.python_request import Request


class LanguageClassifier:
    """Loaded once in each worker process; then called with batches."""

    def __init__(self) -> None:
        self._model = langid.LanguageIdentifier.from_modelstring(langid.model)
        self._weights = self._model.nb_ptc.astype(np.float32)

    def __call__(self, requests: Sequence[Request]) -> list[dict[str, object]]:
        counts = np.stack([self._model.instance2fv(request.text) for request in requests])
        scores = counts.astype(np.float32) @ self._weights + self._model.nb_pc
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        best = shares.argmax(axis=1)
        return [
            {"language": self._model.nb_classes[label], "confidence": round(float(row[label]), 4)}
            for row, label in zip(shares, best, strict=True)
        ]
