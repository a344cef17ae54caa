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
from onnx import TensorProto, helper, numpy_helper
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
        model_onnx = onnx.load(folder / "model.onnx")
        quantize_words(model_onnx)
        onnx.save(model_onnx, folder / "model_quantized.onnx")


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


def quantize_words(model: onnx.ModelProto) -> None:
    """Give the word embeddings, the largest table from which rows are taken, 8 bits a number and a scale a row.

    In a multilingual encoder they are most of the weights. The matrices stay as they are: with ONNX Runtime's dynamic
    quantization vectors depend on the texts beside them, and with `MatMulNBits` of 8 bits .014 of the MAP is lost.
    """
    graph = model.graph
    weights = {weight.name: weight for weight in graph.initializer}
    taken = [node for node in graph.node if node.op_type == "Gather" and node.input[0] in weights]
    name = max((node.input[0] for node in taken), key=lambda name: np.prod(weights[name].dims))
    table = numpy_helper.to_array(weights[name])
    scales = np.maximum(np.abs(table).max(axis=1, keepdims=True) / 127, np.finfo(table.dtype).tiny)
    graph.initializer.remove(weights[name])
    numbers = {f"{name}_int8": np.round(table / scales).astype(np.int8), f"{name}_scales": scales}
    graph.initializer.extend(numpy_helper.from_array(values, key) for key, values in numbers.items())
    for node in (node for node in taken if node.input[0] == name):
        place, (rows,) = [*graph.node].index(node), node.output
        graph.node.remove(node)
        steps = [helper.make_node("Gather", [key, node.input[1]], [f"{rows}{key}"], axis=0) for key in numbers]
        steps.append(helper.make_node("Cast", steps[0].output, [f"{rows}_float"], to=TensorProto.FLOAT))
        steps.append(helper.make_node("Mul", [f"{rows}_float", *steps[1].output], [rows]))
        for step in reversed(steps):
            graph.node.insert(place, step)
