"""mLongformer in an evaluation: its vectors equal those of plain transformers, one document at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from transformers import LongformerForMaskedLM

from replications import evaluate
from replications.longformer.pretrain import convert
from replications.longformer.system import check, load
from replications.system_options import OtherSystemOptions

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("windows", [(16, 16), (8, 16)])
@pytest.mark.parametrize("global_attention", [True, False])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_longformer_reads_one_document_at_a_time(
    tmp_path: Path,
    xlmr: Path,
    documents: list[str],
    global_attention: bool,
    windows: tuple[int, int],
    pooling: Literal["cls", "mean"],
) -> None:
    model, tokenizer = convert(str(xlmr), max_length=1000, attention_window=16)
    model.config.attention_window = list(windows)
    model.save_pretrained(tmp_path)
    model = LongformerForMaskedLM.from_pretrained(tmp_path).eval()
    tokenizer.save_pretrained(tmp_path)
    options = OtherSystemOptions(
        "longformer",
        str(tmp_path),
        pooling=pooling,
        query_prompt="cat ",
        document_prompt="dog sat ",
        global_attention=global_attention,
    )
    check("flat", options)
    system = load(options)
    texts = [*documents, "", "the cat sat " * 500]

    def expected(text: str) -> np.ndarray:
        inputs = tokenizer(text, truncation=True, return_tensors="pt")
        mask = torch.zeros_like(inputs["input_ids"])
        mask[0, 0] = int(global_attention)
        with torch.no_grad():
            (states,) = model.longformer(**inputs, global_attention_mask=mask).last_hidden_state
        pooled = states.mean(dim=0) if pooling == "mean" else states[0]
        return (pooled / pooled.norm()).numpy()

    document_vectors = np.stack([expected("dog sat " + text) for text in texts])
    assert system.encode_documents(texts, "en") == pytest.approx(document_vectors, abs=1e-5)
    alone = [system.encode_queries([text]) for text in texts]  # short ones through narrower windows
    assert np.concatenate(alone) == pytest.approx(np.stack([expected("cat " + text) for text in texts]), abs=1e-5)


def test_a_longformer_is_a_kind_of_its_own(labse: Path, tmp_path: Path) -> None:
    assert evaluate.main  # which registers it
    with pytest.raises(ValueError, match=r"here: pooling is pooler"):  # which was never trained
        check("here", OtherSystemOptions("longformer", "x", pooling="pooler"))
    with pytest.raises(ValueError, match=r"here: .* a model of type bert, no Longformer"):
        check("here", OtherSystemOptions("longformer", str(labse)))
    recipe = "{flat: {kind: longformer, model: nowhere, global_attention: false}}"
    task = f"{{t: {{data: {tmp_path}, pairs: [en-de]}}}}"
    with pytest.raises(ValueError, match="system flat: nowhere does not open"):
        evaluate.main(["--systems", recipe, "--output", str(tmp_path), "--retrieval", task])
