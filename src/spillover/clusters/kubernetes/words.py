"""The words that nodes offer because of their labels, and the labels by which a pod asks for such a word."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from spillover.forms.quantities import is_word

ANY_NODE: Final = "container"
"""The word that every node offers."""
LABEL_OF: Final = {"arch": "kubernetes.io/arch", "os": "kubernetes.io/os"}
"""Words such as `arch:amd64` are the value of one label."""
GPU_WORD: Final = "gpu:"
GPU_LABELS: Final = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
)
_MODEL: Final = re.compile(r"[a-z]{1,2}\d{1,4}[a-z]?", re.ASCII)
"""Model names of GPUs, such as `a100` or `mi300x`, but not `sxm4` or `40gb`."""
_NOT_IN_WORDS: Final = re.compile(r"[^a-z0-9._-]+", re.ASCII)


def offered(labels: Mapping[str, str], *, gpus: bool) -> tuple[str, ...]:
    """Return the words that jobs can name in `needs` for a node with these labels."""
    words = {ANY_NODE}
    for word, label in LABEL_OF.items():
        if label in labels and is_word(f"{word}:{labels[label]}"):
            words.add(f"{word}:{labels[label]}")
    if gpus:
        for label in GPU_LABELS:
            words.update(gpu_words(labels.get(label, "")))
    return tuple(sorted(words))


@lru_cache(maxsize=1024)
def gpu_words(value: str) -> tuple[str, ...]:
    """Return the words for the GPUs that the value of a label names: the whole name, and its model."""
    name = _NOT_IN_WORDS.sub("-", value.lower()).strip("-")
    words = [f"{GPU_WORD}{name}"] if name and is_word(f"{GPU_WORD}{name}") else []
    return (*words, *[f"{GPU_WORD}{part}" for part in name.split("-") if _MODEL.fullmatch(part)][:1])


def gpu_labels(word: str, nodes: Iterable[Mapping[str, str]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the labels by which these nodes offer a word for GPUs, each with all values that stand for it."""
    known = list(nodes)
    for label in GPU_LABELS:
        values = {labels[label] for labels in known if label in labels}
        if found := tuple(sorted(value for value in values if word in gpu_words(value))):
            yield label, found
