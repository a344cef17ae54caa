"""Export a saved HMDE to ONNX, for machines without PyTorch.

    python -m release_tools.export_onnx --model runs/hmde-sample

Writes `onnx/model.onnx` and `onnx/model_quantized.onnx` (int8 weights) into the model's folder. Both take what
`tokenizer.by_passage` makes and give document and sentence embeddings. A query's is that of its only sentence, or of a
document if the configuration's `query_path` is `document_encoder`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import Tensor, nn

from common.command_line import options_from
from common.files import folder_written_whole
from modeling_hmde import HMDEForDocumentEmbedding


@dataclass
class ExportRecipe:
    """An export.

    Args:
        model: folder of a saved HMDE.
    """

    model: str


class Exported(nn.Module):
    """HMDE without its packing, whose shapes depend on where the start tokens stand."""

    def __init__(self, model: HMDEForDocumentEmbedding) -> None:
        super().__init__()
        self.sentence_encoder = model.hmde.sentence_encoder
        self.document_encoder = model.hmde.document_encoder
        self.config = model.config

    def forward(self, input_ids: Tensor, sentence_lengths: Tensor) -> tuple[Tensor, Tensor]:
        """(documents, passages, tokens) and (documents, sentences) -> document embeddings (documents, hidden), not
        normalised, and sentence vectors (documents, sentences, hidden), zero where there is no sentence."""
        real = input_ids != self.config.pad_token_id
        # A passage of padding alone attends to its first token, or its softmax would be over nothing.
        first = torch.zeros_like(real)
        first[:, :, 0] = True
        mask = (real | first).flatten(0, 1).long()
        output = self.sentence_encoder(input_ids=input_ids.flatten(0, 1), attention_mask=mask)
        if self.config.sentence_pooling == "mean":
            states = output.last_hidden_state.unflatten(0, input_ids.shape[:2])
            vectors = mean_of_sentences(states.flatten(1, 2), real.flatten(1), sentence_lengths)
        else:  # with these poolings, a passage is one sentence
            pooled = (
                output.pooler_output if self.config.sentence_pooling == "pooler" else output.last_hidden_state[:, 0]
            )
            vectors = pooled.unflatten(0, input_ids.shape[:2])
        vectors = vectors.masked_fill((sentence_lengths == 0).unsqueeze(-1), 0)
        _, documents = self.document_encoder(vectors, sentence_lengths)
        return documents, vectors


def mean_of_sentences(states: Tensor, real: Tensor, sentence_lengths: Tensor) -> Tensor:
    """States (documents, tokens, hidden) -> the means of the sentences (documents, sentences, hidden).

    Args:
        real: (documents, tokens), False for padding.
        sentence_lengths: (documents, sentences), tokens of each sentence.
    """
    index = real.long().cumsum(dim=1) - 1  # among the real tokens of the document
    sentences_before = (index.unsqueeze(-1) >= sentence_lengths.cumsum(dim=1).unsqueeze(1)).sum(dim=-1)
    sentence = sentences_before.clamp(max=sentence_lengths.shape[1] - 1).unsqueeze(-1).expand_as(states)
    sums = states.new_zeros(*sentence_lengths.shape, states.shape[-1])
    sums = sums.scatter_add(1, sentence, states * real.unsqueeze(-1))
    return sums / sentence_lengths.clamp(min=1).unsqueeze(-1)


def main(argv: list[str] | None = None) -> None:
    recipe = options_from(ExportRecipe, argv)
    model = HMDEForDocumentEmbedding.from_pretrained(recipe.model, dtype=torch.float32, attn_implementation="eager")
    with folder_written_whole(Path(recipe.model) / "onnx") as folder:
        export(model.eval(), folder / "model.onnx")
        quantize_dynamic(folder / "model.onnx", folder / "model_quantized.onnx", weight_type=QuantType.QInt8)


def export(model: HMDEForDocumentEmbedding, file: Path) -> None:
    """Write one file, weights included, for any number of documents, passages, sentences and tokens."""
    input_ids = torch.full((2, 3, 5), model.config.start_token_id)
    sentence_lengths = torch.ones(2, 15 if model.config.sentence_pooling == "mean" else 3, dtype=torch.long)
    torch.onnx.export(
        Exported(model),
        (input_ids, sentence_lengths),
        file,
        input_names=["input_ids", "sentence_lengths"],
        output_names=["document_embeddings", "sentence_embeddings"],
        dynamic_shapes=({0: "documents", 1: "passages", 2: "tokens"}, {0: "documents", 1: "sentences"}),
        external_data=False,
        dynamo=True,
    )


if __name__ == "__main__":
    main()
