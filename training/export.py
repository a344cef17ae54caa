"""Export a saved HMDE to ONNX, for machines without PyTorch.

    python -m training.export --model runs/hmde-sample

Writes `onnx/model.onnx` and `onnx/model_quantized.onnx` (int8 weights) into the model's folder. Both take what
`tokenizer.by_sentence` makes and give document and sentence embeddings; a query's is that of its only sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from jsonargparse import auto_cli
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import Tensor, nn

from modeling_hmde import HMDEForDocumentEmbedding
from training.folders import written_whole


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
        self.pooling = model.config.sentence_pooling

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        """(documents, sentences, tokens) -> document embeddings (documents, hidden), not normalised, and the sentence
        encoder's vectors (documents, sentences, hidden), zero where there is no sentence."""
        sentence_lengths = attention_mask.sum(dim=-1)
        # A sentence of padding alone attends to its first token, or its softmax would be over nothing.
        first = torch.zeros_like(attention_mask)
        first[:, :, 0] = 1
        mask = (attention_mask | first).flatten(0, 1)
        output = self.sentence_encoder(input_ids=input_ids.flatten(0, 1), attention_mask=mask)
        if self.pooling == "pooler":
            vectors = output.pooler_output
        elif self.pooling == "cls":
            vectors = output.last_hidden_state[:, 0]
        else:
            weights = mask.unsqueeze(-1).to(output.last_hidden_state.dtype)
            vectors = (output.last_hidden_state * weights).sum(dim=1) / weights.sum(dim=1)
        vectors = vectors.unflatten(0, sentence_lengths.shape).masked_fill((sentence_lengths == 0).unsqueeze(-1), 0)
        _, documents = self.document_encoder(vectors, sentence_lengths)
        return documents, vectors


def main(argv: list[str] | None = None) -> None:
    recipe = auto_cli(ExportRecipe, args=argv, as_positional=False)
    model = HMDEForDocumentEmbedding.from_pretrained(recipe.model, dtype=torch.float32, attn_implementation="eager")
    with written_whole(Path(recipe.model) / "onnx") as folder:
        export(model.eval(), folder / "model.onnx")
        quantize_dynamic(folder / "model.onnx", folder / "model_quantized.onnx", weight_type=QuantType.QInt8)


def export(model: HMDEForDocumentEmbedding, file: Path) -> None:
    """One file with the weights, any number of documents, sentences and tokens."""
    input_ids = torch.full((2, 3, 5), model.config.start_token_id)
    axes = {0: "documents", 1: "sentences", 2: "tokens"}
    torch.onnx.export(
        Exported(model),
        (input_ids, torch.ones_like(input_ids)),
        file,
        input_names=["input_ids", "attention_mask"],
        output_names=["document_embeddings", "sentence_embeddings"],
        dynamic_shapes=(axes, axes),
        external_data=False,
        dynamo=True,
    )


if __name__ == "__main__":
    main()
