"""MLDoc by LASER's protocol: its texts, and the network above frozen vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from evaluation.datasets import module_of
from evaluation.datasets.labelled_sets import read_labelled_texts
from evaluation.recipes import ClassificationTask
from replications import mldoc
from replications.evaluate import main
from tests.evaluation.running import evaluated
from tests.paths import written

pytestmark = pytest.mark.slow


def test_laser_s_network_reads_mldoc_without_the_line_of_its_copyright(tmp_path: Path) -> None:
    text = "CCAT\tAcme Co . and Bolt Inc . rose. (c) Reuters Limited 1997.\nMCAT\tBonds (C) Reuters Limited 2001.\n"
    for name in ("english.train.1000", "english.dev", "english.test"):
        written(tmp_path / "mldoc" / name, text)
    task = ClassificationTask(str(tmp_path / "mldoc"), ["en"], format="replications.mldoc")
    module_of(task).convert(task, tmp_path / "out")
    stripped = ["Acme Co. and Bolt Inc. rose. ", "Bonds (C) Reuters Limited 2001."]
    for name in ("en.train", "en.dev", "en.test"):
        assert read_labelled_texts(tmp_path / "out" / f"{name}.tsv") == (["CCAT", "MCAT"], stripped)


def test_the_network_gives_the_scores_worked_out_by_hand_in_each_of_five_runs(tmp_path: Path, labse: Path) -> None:
    """Two texts, two labels. In French, one text has the other's label."""
    cats, dogs = "cats\tthe cat sat on the mat\n", "dogs\tder hund\n"
    for part in ("train", "dev", "test"):
        written(tmp_path / f"en.{part}.tsv", cats + dogs)
    written(tmp_path / "fr.test.tsv", cats + cats + dogs + cats.replace("cats", "dogs"))
    recipe = {
        "output": str(tmp_path / "out"),
        "systems": {"base": {"kind": "first", "model": str(labse), "pooling": "mean"}},
        "mlp_classification": {"topics": {"data": str(tmp_path), "test_languages": ["en", "fr"]}},
    }
    found = evaluated(recipe, command=main)["tasks"]["topics"]["base"]
    run_accuracies = {"accuracy_sd": 0.0, "macro_f1_sd": 0.0}
    # French is predicted cats, cats, dogs, cats. Cats: precision 2/3, recall 1; dogs: precision 1, recall 1/2.
    french = {"accuracy": 0.75, "macro_f1": pytest.approx((0.8 + 2 / 3) / 2), "documents": 4}
    english = {"accuracy": 1.0, "macro_f1": 1.0, "documents": 2}
    assert found["rows"] == {"en-en": english | run_accuracies, "en-fr": french | run_accuracies}
    assert found["averages"]["transfer gap"]["accuracy"] == 0.25
    assert found["protocol"].startswith("frozen vectors, LASER's MLP")


def test_the_five_networks_that_are_trained_at_once_equal_five_trained_one_after_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mldoc, "EPOCHS", 4)
    monkeypatch.setattr(mldoc, "DROPOUT", 0.0)  # its draws are not those of five
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(30, 6)).astype(np.float32)
    labels = [("a", "b", "c")[index] for index in draw.integers(0, 3, 30)]
    found = mldoc.fit_mlp(vectors, labels, vectors[:10], labels[:10])
    torch.manual_seed(1)
    starts = [mldoc.ParallelLinear(*sizes) for sizes in ((6, 10), (10, 8), (8, 3))]
    orders = [[torch.randperm(30) for _ in range(5)] for _ in range(4)]
    targets = torch.tensor(["abc".index(label) for label in labels])
    for run in range(5):
        network = torch.nn.Sequential(
            torch.nn.Linear(6, 10), torch.nn.Tanh(), torch.nn.Linear(10, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)
        )
        for layer, start in zip(network[::2], starts):
            layer.load_state_dict({"weight": start.weight[run].T, "bias": start.bias[run, 0]})
        optimizer = torch.optim.Adam(network.parameters(), 1e-3)
        highest, best = -1, None
        for epoch_accuracy in orders:
            for rows in epoch_accuracy[run].split(12):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(network(torch.tensor(vectors)[rows]), targets[rows]).backward()
                optimizer.step()
            right = int((network(torch.tensor(vectors[:10])).argmax(dim=1) == targets[:10]).sum())
            if right >= highest:
                highest, best = right, [weight.detach().clone() for weight in network.parameters()]
        kept = [found.layers[place] for place in (1, 4, 7)]
        for layer, weight, bias in zip(kept, best[::2], best[1::2]):
            torch.testing.assert_close(layer.weight[run].T, weight)
            torch.testing.assert_close(layer.bias[run, 0], bias)
