"""Fit the model server's triage weights: softmax regression on MiniLM vectors of BANKING77.

python -m bench.train_triage TRAIN.csv TEST.csv OUT.npz    (the files of banking_data/; about two minutes)
"""

import argparse
import csv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infra.local.model_server.embeddings import SentenceEncoder

STEPS = 400
RATE = 30.0
MOMENTUM = 0.9
DECAY = 1e-5

Matrix = NDArray[Any]


def read(path: Path) -> tuple[list[str], list[str]]:
    """Texts and their intents."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [row["text"] for row in rows], [row["category"] for row in rows]


def softmax(scores: Matrix) -> Matrix:
    """Scores to probabilities, row by row."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def fit(vectors: Matrix, classes: NDArray[np.int64], *, count: int) -> tuple[Matrix, Matrix]:
    """Weights (384, count) and biases (count,), by gradient descent with momentum from zero: no randomness."""
    inputs = np.hstack([vectors, np.ones((len(vectors), 1), np.float32)])
    targets = np.eye(count, dtype=np.float32)[classes]
    weights = np.zeros((inputs.shape[1], count), np.float32)
    speed = np.zeros_like(weights)
    for _ in range(STEPS):
        ahead = weights + MOMENTUM * speed
        gradient = inputs.T @ (softmax(inputs @ ahead) - targets) / len(inputs) + DECAY * ahead
        speed = MOMENTUM * speed - RATE * gradient
        weights = weights + speed
    return weights[:-1], weights[-1]


def main() -> None:
    """Train, measure on the test file, and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("out", type=Path)
    paths = parser.parse_args()
    encoder = SentenceEncoder()
    train_texts, train_names = read(paths.train)
    test_texts, test_names = read(paths.test)
    labels = sorted(set(train_names))
    train = np.array(encoder.embed_now(train_texts))
    test = np.array(encoder.embed_now(test_texts))
    weights, bias = fit(train, np.array([labels.index(name) for name in train_names]), count=len(labels))
    small, small_bias = weights.astype(np.float16), bias.astype(np.float16)
    for name, vectors, names in (("train", train, train_names), ("test", test, test_names)):
        guesses = (vectors @ small.astype(np.float32) + small_bias.astype(np.float32)).argmax(axis=1)
        hits = sum(labels[guess] == name for guess, name in zip(guesses, names, strict=True))
        print(f"{name}: {hits / len(names):.4f} of {len(names)}")
    np.savez_compressed(paths.out, weights=small, bias=small_bias, labels=np.array(labels))


if __name__ == "__main__":
    main()
