"""transformers' own tests of models, configurations and tokenizers, run on HMDE. Started by tests/peers/run.py."""

from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from transformers import BertConfig, BertModel

sys.path.append(str(Path(__file__).resolve().parents[1]))
from tiny_encoders import DOCUMENTS, SIZES, save_encoder, wordpiece_tokenizer

from modeling_hmde import (
    HMDEConfig,
    HMDEForDocumentEmbedding,
    HMDEForSequenceClassification,
    HMDEModel,
    HMDETokenizer,
)

# Modules that transformers' tests import and its source package leaves out, with what is imported from them. HMDE
# generates nothing, and tests/hmde/test_export_onnx.py exports it.
LEFT_OUT: dict[str, dict[str, Any]] = {
    "utils": {},
    "utils.test_configuration_utils": {
        "config_common_kwargs": {
            "output_hidden_states": True,
            "return_dict": False,
            "dtype": "float16",
            "chunk_size_feed_forward": 5,
            "is_encoder_decoder": False,
            "architectures": ["HMDEModel"],
            "id2label": {0: "label"},
            "label2id": {"label": 0},
            "problem_type": "regression",
        }
    },
    "exporters": {},
    "exporters.test_export": {"ExportTesterMixin": type("ExportTesterMixin", (), {})},
    "generation": {},
    "generation.test_utils": {"GenerationTesterMixin": type("GenerationTesterMixin", (), {})},
}
for name, contents in LEFT_OUT.items():
    sys.modules[f"tests.{name}"] = ModuleType(f"tests.{name}")
    vars(sys.modules[f"tests.{name}"]).update(contents)

# Of transformers' source package, which run.py has unpacked.
from tests.test_configuration_common import ConfigTester  # noqa: E402
from tests.test_modeling_common import ModelTesterMixin  # noqa: E402
from tests.test_tokenization_common import TokenizerTesterMixin  # noqa: E402


class HMDEModelTester:
    """A small configuration, and documents of two sentences of random tokens."""

    batch_size, seq_length, hidden_size, num_hidden_layers, num_attention_heads = 3, 12, 32, 2, 4
    is_training = True

    def get_config(self) -> HMDEConfig:
        return HMDEConfig(
            sentence_config=BertConfig(vocab_size=99, max_position_embeddings=64, **SIZES),
            start_token_id=2,
            max_sentence_length=64,
            num_document_attention_heads=self.num_attention_heads,
            document_intermediate_size=37,
        )

    def prepare_config_and_inputs_for_common(self) -> tuple[HMDEConfig, dict[str, Any]]:
        ids = torch.randint(3, 99, (self.batch_size, self.seq_length))
        ids[:, [0, 5]] = 2
        return self.get_config(), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


# Tests that ask for what a hierarchical encoder is not, by the beginning of their names.
ASKS_FOR_PAIRS = "a text_pair is refused: HMDE reads one document at a time"
NOT_APPLICABLE = {
    "test_attention_outputs": "expects attention among tokens; HMDE's is among sentences",
    "test_hidden_states_output": "expects states of tokens; HMDE's are of sentences",
    "test_eager_matches_sdpa_inference": "gives rows without start tokens; test_precision.py compares them",
    "test_model_outputs_equivalence": "asks for attentions of an attention that does not keep them, which HMDE refuses",
    "test_capture_outputs_decorator": "asks for attentions of an attention that does not keep them, which HMDE refuses",
    "test_model_weights_reload_no_missing_tied_weights": "opens a folder without weights, which HMDE refuses",
    "test_training": "expects a loss of every class; test_classification_head.py tests the classifier's",
    "test_call": ASKS_FOR_PAIRS,
    "test_mask_output": ASKS_FOR_PAIRS,
    "test_maximum_encoding_length_pair_input": ASKS_FOR_PAIRS,
    "test_number_of_added_tokens": ASKS_FOR_PAIRS,
    "test_sequence_ids": ASKS_FOR_PAIRS,
    "test_special_tokens_mask_input_pairs": ASKS_FOR_PAIRS,
    "test_maximum_encoding_length_single_input": "asks for overflowing tokens, which HMDE refuses",
    "test_token_type_ids": "HMDE has no token types",
    "test_tokenize_special_tokens": "expects special tokens to be read in a text, which HMDE prevents",
}


def skip_what_is_not_applicable(test: unittest.TestCase) -> None:
    for beginning, reason in NOT_APPLICABLE.items():
        if test._testMethodName.startswith(beginning):
            test.skipTest(reason)


class TestConfig(unittest.TestCase):
    model_tester = HMDEModelTester()

    def test_config(self) -> None:
        fields = {"max_sentences": 7, "num_document_layers": 3, "document_pooling": "dbos", "temperature": 0.1}
        ConfigTester(self, config_class=HMDEConfig, has_text_modality=False, **fields).run_common_tests()


class TestModel(ModelTesterMixin, unittest.TestCase):
    all_model_classes = (HMDEModel, HMDEForDocumentEmbedding, HMDEForSequenceClassification)
    _is_composite = True

    def setUp(self) -> None:
        skip_what_is_not_applicable(self)
        self.model_tester = HMDEModelTester()


class TestTokenizer(TokenizerTesterMixin, unittest.TestCase):
    tokenizer_class = HMDETokenizer
    test_seq2seq = False

    @classmethod
    def setUpClass(cls) -> None:
        # In place of the base's, whose sample of text the source package leaves out.
        cls.from_pretrained_id, cls.tokenizers_list, cls._data = [], [], "\n".join(DOCUMENTS)
        cls.tmpdirname = tempfile.mkdtemp()
        tokenizer = wordpiece_tokenizer()
        config = BertConfig(**SIZES, vocab_size=len(tokenizer))
        encoder = save_encoder(BertModel(config), tokenizer, Path(tempfile.mkdtemp()))
        HMDETokenizer.from_sentence_encoder(str(encoder)).save_pretrained(cls.tmpdirname)

    def setUp(self) -> None:
        skip_what_is_not_applicable(self)

    def get_input_output_texts(self, tokenizer: HMDETokenizer) -> tuple[str, str]:
        return DOCUMENTS[2], DOCUMENTS[2]
