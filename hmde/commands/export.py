"""Export a saved HMDE to ONNX, for machines without PyTorch.

    hmde export runs/hmde-sample

Writes `onnx/model.onnx` and `onnx/model_quantized.onnx` (weights of 8 bits) into the model's folder. Both take what
`tokenizer.by_passage` makes and give document and sentence embeddings. A query's is that of its only sentence, or of a
document if the configuration's `query_path` is `document_encoder`.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
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
        quantize(folder / "model.onnx", folder / "model_quantized.onnx")


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


def quantize(file: Path, output: Path) -> None:
    """Write an exported model again with weights of 8 bits.

    Each 128 weights of a column and each row of the word embeddings have a scale. What they are multiplied with stays in
    float32: numbers of 8 bits there cost .014 of the MAP, and vectors depended on the texts beside them.
    """
    model = onnx.load(file)
    quantize_rows(model)
    logging.getLogger(MatMulNBitsQuantizer.__module__).setLevel(logging.WARNING)  # it names every node
    quantizer = MatMulNBitsQuantizer(model, bits=8, block_size=128, is_symmetric=True)
    quantizer.process()
    onnx.save(quantizer.model.model, output)


def quantize_rows(model: onnx.ModelProto) -> None:
    """Give the largest table from which rows are taken, that of word embeddings, 8 bits a number and a scale a row."""
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
