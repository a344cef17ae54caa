"""The configuration: its defaults, what it refuses, and that it comes back from its file as it was."""

from __future__ import annotations

import itertools
import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import transformers
from transformers import (
    AutoConfig,
    BertConfig,
    CLIPConfig,
    ModernBertConfig,
    T5Config,
    ViTConfig,
    XLMRobertaConfig,
)

from modeling_hmde import (
    HMDEConfig,
    configuration_hmde,
)

SENTENCE_CONFIG = BertConfig(
    vocab_size=200, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64
)


def test_the_defaults_are_the_sizes_of_the_paper() -> None:
    config = HMDEConfig()
    assert (config.max_sentences, config.max_sentence_length) == (32, 128)
    assert (config.num_document_layers, config.num_document_attention_heads) == (2, 8)
    assert (config.document_intermediate_size, config.document_hidden_act) == (2048, "gelu")
    assert (config.document_layer_norm_eps, config.document_dropout) == (1e-12, 0.1)
    assert (config.document_norm, config.document_positions, config.document_pooling) == ("post", False, "mean")
    assert config.hidden_size == config.sentence_config.hidden_size == 768
    assert HMDEConfig(sentence_config=SENTENCE_CONFIG).hidden_size == 32


@pytest.mark.parametrize(
    "sentence_config",
    [
        SENTENCE_CONFIG,
        SENTENCE_CONFIG.to_dict(),
        XLMRobertaConfig(vocab_size=200, hidden_size=32, max_position_embeddings=514),
        ModernBertConfig(vocab_size=200, hidden_size=32, num_attention_heads=4, pad_token_id=0),
    ],
    ids=["bert", "dictionary", "xlm-roberta", "modernbert"],
)
def test_a_config_comes_back_from_its_file_as_it_was(sentence_config: object, tmp_path: Path) -> None:
    config = HMDEConfig(
        sentence_config=sentence_config,
        num_labels=3,
        problem_type="multi_label_classification",
        document_norm="pre",
        document_positions=True,
        max_sentences=7,
        temperature=0.1,
    )
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert type(loaded) is HMDEConfig
    assert type(loaded.sentence_config) is type(config.sentence_config)
    assert loaded.sentence_config.to_dict() == config.sentence_config.to_dict()
    assert loaded.to_json_string() == config.to_json_string()
    assert HMDEConfig.from_dict(json.loads(config.to_json_string(use_diff=False))).to_dict() == config.to_dict()


def test_a_config_saved_alone_comes_with_its_code(tmp_path: Path) -> None:
    HMDEConfig(sentence_config=SENTENCE_CONFIG).save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["auto_map"] == {"AutoConfig": "configuration_hmde.HMDEConfig"}
    assert (tmp_path / "configuration_hmde.py").exists()


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("start_token_id", -1, "greater or equal to 0"),
        ("start_token_id", 200, "vocabulary of 200"),
        ("pad_token_id", -1, "greater or equal to 0"),
        ("pad_token_id", 200, "vocabulary of 200"),
        ("pad_token_id", 101, "must differ"),
        ("sentence_pooling", "first", "one of ('cls', 'mean', 'pooler', "),
        ("max_sentence_length", 2, "greater or equal to 3"),
        ("max_sentence_length", 513, "only 512 positions"),
        ("max_sentences", 0, "greater or equal to 1"),
        ("passage_length", -1, "greater or equal to 0"),
        ("passage_length", 127, "a sentence may have 128 tokens"),
        ("num_document_layers", 0, "greater or equal to 1"),
        ("num_document_attention_heads", 0, "greater or equal to 1"),
        ("num_document_attention_heads", 5, "does not divide the width 32"),
        ("document_intermediate_size", 0, "greater or equal to 1"),
        ("document_hidden_act", "gelo", "one of"),
        ("document_layer_norm_eps", 0.0, "greater than 0"),
        ("document_dropout", 1.0, "smaller than 1"),
        ("document_dropout", -0.1, "greater or equal to 0"),
        ("sentence_vector_dropout", 1.0, "smaller than 1"),
        ("classifier_dropout", -0.1, "greater or equal to 0"),
        ("classifier_dropout", 1.0, "smaller than 1"),
        ("num_special_tokens", [1], "two counts"),
        ("num_special_tokens", [0, -1], "two counts"),
        ("document_residual", 1.0, "smaller than 1"),
        ("document_first_sentence", 1.0, "smaller than 1"),
        ("document_norm", "none", "one of ('post', 'pre')"),
        ("document_pooling", "cls", "one of ('mean', 'token_mean', 'mean_with_dbos', 'dbos')"),
        ("temperature", 0.0, "greater than 0"),
        ("temperature", float("nan"), "greater than 0"),
        ("initializer_range", -1.0, "greater than 0"),
        ("hidden_size", 64, "leave it out"),
    ],
)
def test_an_impossible_value_is_refused_by_its_name(field: str, value: object, rule: str) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(rule)) as refusal:
        HMDEConfig(sentence_config=SENTENCE_CONFIG, **{field: value})
    assert field in str(refusal.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("start_token_id", 0),
        ("start_token_id", 199),
        ("pad_token_id", 199),
        ("num_special_tokens", [0, 0]),
        ("max_sentence_length", 512),
        ("classifier_dropout", 0.99),
        ("document_residual", 0.0),
    ],
)
def test_the_last_possible_value_is_possible(field: str, value: object) -> None:
    others = {"sentence_pooling": "mean", "start_token_id": 101, "pad_token_id": 1} | {field: value}
    assert getattr(HMDEConfig(sentence_config=SENTENCE_CONFIG, **others), field) == value


def test_of_an_encoder_that_counts_no_positions_sentences_may_be_as_long_as_one_likes() -> None:
    sentence_config = T5Config(vocab_size=200, d_model=32, num_heads=4)
    assert HMDEConfig(sentence_config=sentence_config, max_sentence_length=100_000).max_sentence_length == 100_000


def test_a_value_of_another_type_is_refused() -> None:
    whole = ("pad_token_id", "max_sentence_length", "max_sentences", "passage_length", "num_document_layers")
    whole += ("num_document_attention_heads", "document_intermediate_size")
    real = ("document_layer_norm_eps", "document_dropout", "temperature", "initializer_range")
    for fields, values, expected in (
        (whole, (4.0, "4", True, None), "expected int"),
        (real, ("0.1", True, None), "expected float"),
        (("document_positions",), (1, "true", None), ""),
    ):
        for field, value in itertools.product(fields, values):
            with pytest.raises(TypeError, match=f"{field} is {value!r}.*{expected}"):
                HMDEConfig(sentence_config=SENTENCE_CONFIG, **{field: value})


@pytest.mark.parametrize(
    "model_type", ["xlm-roberta", "roberta", "camembert", "mpnet", "roberta-prelayernorm", "xlm-roberta-xl"]
)
def test_the_longest_sentence_leaves_room_for_the_position_offset_of_roberta_and_its_kin(model_type: str) -> None:
    sizes = {"vocab_size": 200, "hidden_size": 32, "pad_token_id": 1, "max_position_embeddings": 514}
    sentence_config = AutoConfig.for_model(model_type, **sizes)
    assert HMDEConfig(sentence_config=sentence_config, max_sentence_length=512).max_sentence_length == 512
    with pytest.raises(ValueError, match="only 512 positions"):
        HMDEConfig(sentence_config=sentence_config, max_sentence_length=513)
    with pytest.raises(ValueError, match="passage_length is 513, but the sentence encoder has only 512 positions"):
        HMDEConfig(sentence_config=sentence_config, sentence_pooling="mean", passage_length=513)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        (
            {"document_residual": 0.5, "document_pooling": "dbos"},
            "document_residual is 0.5, but document_pooling is 'dbos'",
        ),
        ({"document_residual": 0.5, "document_pooling": "mean_with_dbos"}, "document_pooling is 'mean_with_dbos'"),
        (
            {"document_first_sentence": 0.2, "document_pooling": "dbos"},
            "document_first_sentence is 0.2, but document_pooling is 'dbos'",
        ),
        ({"passage_length": 256, "sentence_pooling": "cls"}, "passage_length is 256, but sentence_pooling is 'cls'"),
        ({"passage_length": 256, "sentence_pooling": "pooler"}, "but sentence_pooling is 'pooler'"),
        ({"sentence_config": CLIPConfig()}, "no hidden_size"),
        ({"sentence_config": ViTConfig()}, "no vocab_size"),
        ({"sentence_config": 3}, "sentence_config is 3; it must be a configuration"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(fields: dict[str, Any], rule: str) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(rule)):
        HMDEConfig(**{"sentence_config": SENTENCE_CONFIG, **fields})


# --- fields that are none --------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    HMDEConfig(sentence_config=SENTENCE_CONFIG, max_sentences=7, num_labels=3).save_pretrained(tmp_path)
    return tmp_path


def change_file(folder: Path, **fields: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


@pytest.mark.parametrize("field", ["document_poling", "num_attention_heads", "colour"])
def test_an_unknown_field_is_refused_by_its_name(field: str) -> None:
    for make in (HMDEConfig, lambda **fields: AutoConfig.for_model("hmde", **fields)):
        with pytest.raises(ValueError, match=f"HMDEConfig has no field {field}"):
            make(sentence_config=SENTENCE_CONFIG, **{field: 1})


def test_what_every_configuration_takes_is_taken() -> None:
    options = {
        "architectures": ["HMDEForDocumentEmbedding"],
        "attn_implementation": "eager",
        "auto_map": {"AutoConfig": "configuration_hmde.HMDEConfig"},
        "dtype": "bfloat16",
        "id2label": {0: "cats", 1: "dogs"},
        "label2id": {"cats": 0, "dogs": 1},
        "name_or_path": "someone/hmde",
        "num_labels": 2,
        "output_attentions": True,
        "output_hidden_states": True,
        "problem_type": "regression",
        "quantization_config": {},
        "return_dict": False,
        "transformers_version": "5.20.0",
    }
    config = HMDEConfig(sentence_config=SENTENCE_CONFIG, **options)
    assert config.num_labels == 2
    assert HMDEConfig(**config.to_dict()).to_dict() == config.to_dict()


def test_a_file_of_another_version_of_transformers_is_read(saved: Path) -> None:
    added = {
        "transformers_version": "6.1.0",
        "torch_dtype": "float32",
        "a_field_of_version_6": {"a": 1},
        "use_cache": True,
        "is_decoder": False,
        "_commit_hash": None,
        "pruned_heads": {},
    }
    change_file(saved, **added)
    for config in (
        HMDEConfig.from_pretrained(saved),
        AutoConfig.from_pretrained(saved),
        HMDEConfig.from_json_file(saved / "config.json"),
        HMDEConfig.from_dict(json.loads((saved / "config.json").read_text())),
    ):
        assert (config.max_sentences, config.num_labels, config.hidden_size) == (7, 3, 32)
        assert config.a_field_of_version_6 == {"a": 1}


def test_an_argument_of_loading_that_is_no_field_is_refused_or_handed_back(saved: Path) -> None:
    with pytest.raises(ValueError, match="HMDEConfig has no field max_sentence;"):
        HMDEConfig.from_pretrained(saved, max_sentence=3)
    config, unused = HMDEConfig.from_pretrained(saved, max_sentence=3, max_sentences=4, return_unused_kwargs=True)
    assert config.max_sentences == 4
    assert unused == {"max_sentence": 3}


def test_what_is_changed_when_loading_is_checked_together_with_the_file(saved: Path) -> None:
    config = HMDEConfig.from_pretrained(saved, document_pooling="dbos", sentence_config={"num_hidden_layers": 3})
    assert (config.document_pooling, config.sentence_config.num_hidden_layers) == ("dbos", 3)
    assert (config.max_sentences, config.sentence_config.hidden_size) == (7, 32)
    with pytest.raises(ValueError, match=r"document_residual is 0\.5, but document_pooling is 'dbos'"):
        HMDEConfig.from_pretrained(saved, document_pooling="dbos", document_residual=0.5)


@pytest.mark.parametrize(("field", "value"), [("max_sentences", 0), ("document_pooling", "max"), ("temperature", "1")])
def test_a_value_set_later_is_checked_too(field: str, value: object) -> None:
    config = HMDEConfig(sentence_config=SENTENCE_CONFIG)
    with pytest.raises((ValueError, TypeError), match=f"{field} is {value!r}"):
        setattr(config, field, value)


def test_too_old_a_transformers_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(transformers.configuration_utils, "SubConfigSpec")
    monkeypatch.setattr(transformers, "__version__", "4.57.0")
    with pytest.raises(ImportError, match=r"needs transformers 5.20 or newer, and this is 4.57.0: pip install"):
        runpy.run_path(configuration_hmde.__file__)
