"""`make release`: several trainings, their mean, its rotation, its card and its way to the Hub."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess

import numpy as np
import pytest
from huggingface_hub import ModelCard

from hmde.common.command_line import options_from
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from replications.hmde_small import rotate
from tests.paths import REPOSITORY
from tests.pretraining import options
from training import average, pretrain
from training.pretrain_recipe import PretrainRecipe


@pytest.mark.slow
def test_two_trainings_their_mean_and_what_is_uploaded_of_it(
    corpus_folder, labse, documents, tmp_path, monkeypatch, encoded_elsewhere
):
    """What `make release` does, in small. A folder stands for the repository on the Hub."""
    uploaded = tmp_path / "uploaded"
    monkeypatch.setattr(rotate, "upload_folder", lambda folder, name: shutil.copytree(folder, uploaded))
    encoder = tmp_path / "labse"
    shutil.copytree(labse, encoder)
    (encoder / "README.md").write_text("---\nlicense: apache-2.0\nbase_model: someone/labse\n---\n# LaBSE\n")
    for seed in ("1", "2"):
        pretrain.main(options(corpus_folder, encoder, tmp_path / f"seed-{seed}", max_steps=2, keep="last", seed=seed))
    models = f"[{tmp_path / 'seed-1'}, {tmp_path / 'seed-2'}]"
    mean = ["--models", models, "--output", str(tmp_path / "mean"), "--corpus", str(corpus_folder)]
    average.main(mean)
    rotated = ["--model", str(tmp_path / "mean"), "--output", str(tmp_path / "rotated"), "--sizes", "[]"]
    rotate.main([*rotated, "--corpus", str(corpus_folder), "--push_to_hub", "someone/mean"])
    card = ModelCard.load(uploaded / "README.md")
    assert card.data.license == "apache-2.0"
    assert card.data.base_model == "someone/labse"
    assert card.data.language == ["de", "en", "fr"]
    assert 'AutoModel.from_pretrained("someone/mean"' in card.text
    assert card.text.count("On the corpus *corpus*: ") == 2, card.text
    for name in ("seed-1", "seed-2", "their mean"):
        assert re.search(rf"{name} \| [01]\.\d{{3}} \| [01]\.\d{{3}} \|", card.text), name
    model = HMDEForDocumentEmbedding.from_pretrained(tmp_path / "rotated")
    expected = model.encode_documents(documents, HMDETokenizer.from_pretrained(tmp_path / "rotated"))
    np.testing.assert_allclose(encoded_elsewhere(uploaded, documents)["documents"], expected, atol=1e-6)


def test_the_trainings_of_make_release_are_recipes():
    """Each says what the next one reads, with options that exist."""
    command = ["make", "--dry-run", "release", "HUB=someone/hmde", "ARTICLES=articles", "LANGUAGES=[en, fr]"]
    printed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    lines = [line for line in printed.replace("\\\n", " ").splitlines() if "training/pretrain.py" in line]
    recipes = []
    for line in lines:
        arguments = shlex.split(line.partition("training/pretrain.py")[2])
        begin, end = arguments.index("$(ls"), arguments.index("true)")  # goes on from a checkpoint
        recipes.append(options_from(PretrainRecipe, arguments[:begin] + arguments[end + 1 :]))
    assert [recipe.seed for recipe in recipes] == [42, 43, 42, 43, 46, 47]
    assert [recipe.freeze for recipe in recipes] == 2 * ["sentence_encoder"] + 4 * ["word_embeddings"]
    starts, outputs = ([getattr(recipe, name) for recipe in recipes] for name in ("sentence_encoder", "output"))
    assert starts[2:4] == outputs[:2]
    assert starts[4] == starts[5]
    corpora = [recipe.corpus for recipe in recipes]
    assert corpora == [*4 * [corpora[0]], corpora[4], corpora[0]]
    assert f"training.corpus --articles articles --output {corpora[4]} " in printed
    means = re.findall(r"training.average --models '\[(.*?)\]'\s+--output (\S+)", printed.replace("\\\n", " "))
    mean = means[-1][1]
    assert means == [(", ".join(outputs[2:4]), starts[4]), (", ".join([starts[4], *outputs[4:]]), mean)]
    assert re.search(
        rf"replications.hmde_small.rotate --model {mean} .* --push_to_hub someone/hmde$", printed, re.MULTILINE
    )
