"""Export a saved HMDE to ONNX, for machines without PyTorch.

    hmde export runs/hmde-sample

Writes `onnx/model.onnx` and `onnx/model_quantized.onnx` (word embeddings of 8 bits) into the model's folder. Both take
what `tokenizer.by_passage` makes and give document and sentence embeddings. A query's is that of its only sentence, or
of a document if the configuration's `query_path` is `document_encoder`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import Tensor, nn

from hmde.commands.options import ExportOptions
from hmde.common.files import folder_written_whole
from hmde.common.saved_models import check_is_hmde
from modeling_hmde import HMDEForDocumentEmbedding


class Embedder(nn.Module):
    """An HMDE with the outputs that search needs."""

    def __init__(self, model: HMDEForDocumentEmbedding) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, sentence_lengths: Tensor) -> tuple[Tensor, Tensor]:
        """(documents, passages, tokens) twice and (documents, sentences) -> document embeddings (documents, hidden),
        not normalised, and sentence vectors (documents, sentences, hidden), zero where there is no sentence."""
        output = self.model.hmde.forward_by_passage(input_ids, attention_mask, sentence_lengths)
        return output.pooler_output, output.sentence_embeddings


def main(options: ExportOptions) -> None:
    if not Path(options.model).is_dir():
        raise ValueError(f"model {options.model} is no folder, into which the export goes; download the model first")
    check_is_hmde("model", options.model)
    model = HMDEForDocumentEmbedding.from_pretrained(options.model, dtype=torch.float32, attn_implementation="eager")
    with folder_written_whole(Path(options.model) / "onnx") as folder:
        export(model, folder / "model.onnx")
        quantize_words(folder / "model.onnx", folder / "model_quantized.onnx")


def export(model: HMDEForDocumentEmbedding, file: Path) -> None:
    """Write one file, weights included, for any number of documents, passages, sentences and tokens."""
    input_ids, attention_mask = (torch.ones(2, 3, 5, dtype=torch.long) for _ in range(2))
    alone = model.config.sentence_pooling in ("cls", "pooler")  # a passage is one sentence
    sentence_lengths = torch.ones(2, 3 if alone else 15, dtype=torch.long)
    passages = {0: "documents", 1: "passages", 2: "tokens"}
    torch.onnx.export(
        Embedder(model).eval(),
        (input_ids, attention_mask, sentence_lengths),
        file,
        input_names=["input_ids", "attention_mask", "sentence_lengths"],
        output_names=["document_embeddings", "sentence_embeddings"],
        dynamic_shapes=(passages, passages, {0: "documents", 1: "sentences"}),
        external_data=False,
        dynamo=True,
    )


def quantize_words(file: Path, quantized: Path) -> None:
    """Write the file again, with 8 bits a number in the word embeddings, the largest table from which rows are taken.

    In a multilingual encoder they are most of the weights. The matrices stay as they are: with ONNX Runtime's dynamic
    quantization vectors depend on the texts beside them, and with `MatMulNBits` of 8 bits .014 of the MAP is lost.
    """
    graph = onnx.load(file).graph
    sizes = {weight.name: np.prod(weight.dims) for weight in graph.initializer}
    taken = [node for node in graph.node if node.op_type == "Gather" and node.input[0] in sizes]
    most = max(sizes[node.input[0]] for node in taken)
    words = [node.name for node in taken if sizes[node.input[0]] == most]
    quantize_dynamic(file, quantized, ["Gather"], nodes_to_quantize=words, weight_type=QuantType.QInt8)
