"""The models: how they are made, saved and loaded, what they refuse, and their encoding of lists of texts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForSequenceClassification
from transformers.utils.logging import enable_progress_bar

from modeling_hmde import (
    HMDEForDocumentEmbedding,
    HMDEForSequenceClassification,
    HMDEModel,
    HMDETokenizer,
    inference_hmde,
)
from tests.tiny_encoders import DOCUMENTS

MakeModel = Callable[..., HMDEForDocumentEmbedding]
MODEL_CLASSES = [HMDEModel, HMDEForDocumentEmbedding, HMDEForSequenceClassification]


@pytest.fixture
def nan_in_new_memory() -> Iterator[None]:
    """Whatever torch allocates without filling it holds NaN."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="module")
def saved(model: HMDEForDocumentEmbedding, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `model`, without a tokenizer. Not to be changed."""
    folder = tmp_path_factory.mktemp("saved")
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def inputs(tokenizer: HMDETokenizer, documents: list[str]) -> dict[str, torch.Tensor]:
    return tokenizer(documents, padding=True, return_tensors="pt")


def assert_same_weights(actual: torch.nn.Module, expected: torch.nn.Module) -> None:
    theirs = expected.state_dict()
    assert actual.state_dict().keys() == theirs.keys()
    for name, weight in actual.state_dict().items():
        assert torch.equal(weight, theirs[name]), name


# --- made from a sentence encoder ------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_class", MODEL_CLASSES)
def test_the_sentence_encoder_has_its_checkpoints_weights_bit_for_bit(encoder_folder: Path, model_class: type) -> None:
    model = model_class.from_sentence_encoder(str(encoder_folder), num_document_attention_heads=4)
    checkpoint = load_file(encoder_folder / "model.safetensors")
    weights = model.base_model.sentence_encoder.state_dict()
    assert set(checkpoint) - set(weights) <= {"pooler.dense.weight", "pooler.dense.bias"}
    for name, weight in weights.items():
        assert torch.equal(weight, checkpoint[name]), name
    assert not model.training


def test_the_sentence_encoders_pooler_is_kept_where_it_is_used_only(labse: Path, make_model: MakeModel) -> None:
    checkpoint = load_file(labse / "model.safetensors")
    pooler = make_model(labse, sentence_pooling="pooler").hmde.sentence_encoder.pooler
    assert torch.equal(pooler.dense.weight, checkpoint["pooler.dense.weight"])
    assert make_model(labse, sentence_pooling="cls").hmde.sentence_encoder.pooler is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_dtype_reaches_both_encoders(labse: Path, dtype: torch.dtype) -> None:
    model = HMDEForDocumentEmbedding.from_sentence_encoder(str(labse), dtype=dtype)
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}


def test_no_path_of_this_machine_is_saved(labse: Path, model: HMDEForDocumentEmbedding, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    HMDETokenizer.from_sentence_encoder(str(labse)).save_pretrained(tmp_path)
    for file in tmp_path.glob("*.json"):
        assert str(labse) not in file.read_text(), file.name


@pytest.mark.parametrize(
    ("encoder", "options", "message"),
    [
        ("labse", {"sentence_poling": "mean"}, "HMDEConfig has no field sentence_poling"),
        ("labse", {"num_document_attention_heads": 5}, "does not divide the width 32"),
        ("modernbert", {"sentence_pooling": "pooler"}, "a modernbert model has none; use 'cls' or 'mean'"),
    ],
)
def test_an_option_that_cannot_be_is_refused(
    encoder: str, options: dict, message: str, request: pytest.FixtureRequest
) -> None:
    folder, options = str(request.getfixturevalue(encoder)), {"num_document_attention_heads": 4} | options
    with pytest.raises(ValueError, match=message):
        HMDEForDocumentEmbedding.from_sentence_encoder(folder, **options)


# --- saved and loaded as a built-in model is (each a trap that custom models on transformers 5 fall into) ------------


@pytest.mark.parametrize("model_class", MODEL_CLASSES)
@pytest.mark.parametrize("document_norm", ["post", "pre"])
def test_a_model_has_no_tied_weights_no_buffers_of_its_own_and_can_be_built_on_the_meta_device(
    labse: Path, model_class: type, document_norm: str
) -> None:
    model = model_class.from_sentence_encoder(str(labse), document_norm=document_norm, document_positions=True)
    assert model.all_tied_weights_keys == {}, "post_init has not run"
    assert not model._tied_weights_keys
    places = [weight.untyped_storage().data_ptr() for weight in model.state_dict().values()]
    assert len(set(places)) == len(places)
    assert all("sentence_encoder." in name for name, _ in model.named_buffers())
    with torch.device("meta"):
        assert all(parameter.is_meta for parameter in model_class(model.config).parameters())


def test_loading_leaves_no_garbage_of_new_memory(
    encoder_folder: Path, make_model: MakeModel, tmp_path: Path, documents: list[str], nan_in_new_memory: None
) -> None:
    model = make_model(encoder_folder, document_positions=True, rotation=True)
    torch.nn.init.orthogonal_(model.hmde.rotation.weight)
    inputs = HMDETokenizer.from_sentence_encoder(str(encoder_folder))(documents, padding=True, return_tensors="pt")
    model.save_pretrained(tmp_path)
    loaded = HMDEForDocumentEmbedding.from_pretrained(tmp_path)
    assert_same_weights(loaded, model)
    for name, buffer in loaded.named_buffers():
        assert torch.equal(buffer, model.get_buffer(name)), name
    with torch.no_grad():
        assert torch.equal(loaded(**inputs).pooler_output, model(**inputs).pooler_output)


def test_loading_reads_nothing_but_the_models_own_folder(labse: Path, make_model: MakeModel, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(labse, source)
    model = make_model(source)
    model.save_pretrained(tmp_path / "saved")
    shutil.rmtree(source)
    assert_same_weights(AutoModel.from_pretrained(tmp_path / "saved"), model)


LAYER = "hmde.document_encoder.layers.1"


@pytest.mark.parametrize("document_norm", ["post", "pre"])
@pytest.mark.parametrize(
    "missing",
    [
        {"hmde.document_encoder.dbos", "hmde.document_encoder.positions.weight", f"{LAYER}.attention.output.weight"},
        {f"{LAYER}.attention.output.bias", f"{LAYER}.feed_forward.input.weight"},
    ],
    ids=["what stands alone", "half of a module"],
)
def test_loading_keeps_the_weights_there_are_and_initialises_those_there_are_not(
    labse: Path, make_model: MakeModel, tmp_path: Path, document_norm: str, missing: set[str], nan_in_new_memory: None
) -> None:
    """Loaded weights must outlive `_init_weights`, also those of modules of which another weight is missing."""
    make_model(labse, document_norm=document_norm, document_positions=True).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if name not in missing}
    save_file(kept, tmp_path / "model.safetensors", {"format": "pt"})
    loaded = HMDEForDocumentEmbedding.from_pretrained(tmp_path, ignore_mismatched_sizes=True).state_dict()
    for name, weight in kept.items():
        assert torch.equal(loaded[name], weight), name
    for name in missing:
        starts_at_zero = document_norm == "pre" and ("positions" in name or "output" in name)
        if starts_at_zero or name.endswith("bias"):
            assert not loaded[name].any(), name
        else:
            assert 0.01 < loaded[name].std() < 0.04, name


def test_models_with_and_without_a_head_load_each_others_weights(
    saved: Path, model: HMDEForDocumentEmbedding, tmp_path: Path
) -> None:
    classifier = AutoModelForSequenceClassification.from_pretrained(saved, num_labels=3)
    assert type(classifier) is HMDEForSequenceClassification
    assert_same_weights(classifier.hmde, model.hmde)
    assert classifier.classifier.weight.shape == (3, 32)
    assert 0.01 < classifier.classifier.weight.std() < 0.04
    bare = HMDEModel.from_pretrained(saved)
    assert_same_weights(bare, model.hmde)
    for number, other in enumerate((classifier, bare)):
        other.save_pretrained(tmp_path / str(number))
        assert_same_weights(AutoModel.from_pretrained(tmp_path / str(number)), model)


@pytest.mark.parametrize(
    "arguments", [{}, {"low_cpu_mem_usage": True}, {"device_map": "cpu"}, {"device_map": "auto"}], ids=str
)
def test_every_way_of_loading_gives_the_same_embeddings_bit_for_bit(
    saved: Path, model: HMDEForDocumentEmbedding, inputs: dict[str, torch.Tensor], arguments: dict
) -> None:
    loaded = AutoModel.from_pretrained(saved, **arguments)
    with torch.no_grad():
        assert torch.equal(loaded(**inputs).pooler_output, model(**inputs).pooler_output)


def test_a_model_loads_in_bfloat16_and_keeps_it_when_saved(
    saved: Path, model: HMDEForDocumentEmbedding, inputs: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    loaded = AutoModel.from_pretrained(saved, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.bfloat16}
    with torch.no_grad():
        actual, exact = loaded(**inputs).pooler_output, model(**inputs).pooler_output
    assert actual.dtype == torch.bfloat16
    assert torch.cosine_similarity(actual.float(), exact).min() > 0.98
    loaded.save_pretrained(tmp_path)
    assert AutoModel.from_pretrained(tmp_path).dtype == torch.bfloat16


def test_weights_are_saved_as_safetensors_only(saved: Path, model: HMDEForDocumentEmbedding) -> None:
    assert set(load_file(saved / "model.safetensors")) == set(model.state_dict())
    assert not [*saved.glob("*.bin"), *saved.glob("*.pt")]


@pytest.mark.parametrize("model_class", MODEL_CLASSES)
def test_every_saved_folder_holds_the_code_for_every_auto_class(labse: Path, model_class: type, tmp_path: Path) -> None:
    model_class.from_sentence_encoder(str(labse)).save_pretrained(tmp_path)
    auto_map = json.loads((tmp_path / "config.json").read_text())["auto_map"]
    assert set(auto_map) == {"AutoConfig", "AutoModel", "AutoModelForSequenceClassification"}
    for name in auto_map.values():
        assert "--" not in name, "code of another repository"
        assert (tmp_path / f"{name.split('.')[0]}.py").exists()


def test_device_maps_split_no_layer_of_either_encoder(model: HMDEForDocumentEmbedding) -> None:
    assert {"DocumentLayer", "BertLayer"} <= set(model._no_split_modules)


def test_the_config_makes_an_untrained_model(model: HMDEForDocumentEmbedding) -> None:
    untrained = AutoModel.from_config(model.config)
    assert type(untrained) is HMDEForDocumentEmbedding
    assert untrained.state_dict().keys() == model.state_dict().keys()


def test_output_is_a_tuple_where_that_is_asked_for(
    model: HMDEForDocumentEmbedding, inputs: dict[str, torch.Tensor]
) -> None:
    with torch.no_grad():
        output = model(**inputs, return_dict=False)
        assert isinstance(output, tuple)
        assert torch.equal(output[1], model(**inputs).pooler_output)


# --- rows that are no documents --------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [-1, "first", 10**6])
def test_an_id_out_of_the_vocabulary_is_named(model: HMDEForDocumentEmbedding, token: int | str) -> None:
    size = model.config.sentence_config.vocab_size
    token = size if token == "first" else token
    assert model(torch.tensor([[2, 7, size - 1]])).pooler_output.isfinite().all()
    with pytest.raises(ValueError, match=rf"input_ids\[1, 2\] is {token}, outside the vocabulary of"):
        model(torch.tensor([[2, 7, 3], [2, 7, token]]))


def test_rows_of_tokens_cannot_be_exported(labse: Path, make_model: MakeModel, inputs: dict[str, torch.Tensor]) -> None:
    with pytest.raises(Exception, match=r"cannot be exported with rows of tokens.*tokenizer\.by_passage"):
        torch.export.export(make_model(labse, attn_implementation="sdpa"), (), dict(inputs))


@pytest.mark.parametrize(
    ("rows", "mask", "fault"),
    [
        ([[2, 7, 3], [7, 2, 3]], None, "row 1 of the batch begins with token 7, not with the start token 2"),
        ([[2, 7, 3], [0, 0, 0]], None, "row 1 of the batch has no real token"),
        ([[2, 7, 3], [0, 0, 0]], [[1, 1, 1], [0, 0, 0]], "row 1 of the batch has no real token"),
        ([], None, "input_ids has no row"),
    ],
)
def test_rows_that_are_no_documents_are_refused(
    model: HMDEForDocumentEmbedding, rows: list, mask: list | None, fault: str
) -> None:
    ids = torch.tensor(rows, dtype=torch.long).view(-1, 3)
    with pytest.raises(ValueError, match=fault):
        model(ids, None if mask is None else torch.tensor(mask))


@torch.no_grad()
def test_tokens_that_the_attention_mask_leaves_out_are_not_read(model: HMDEForDocumentEmbedding) -> None:
    start, end = model.config.start_token_id, model.config.start_token_id + 1
    rows, shorter = torch.tensor([[start, 9, 10, 11, end]]), torch.tensor([[start, 9, 10]])
    mask = torch.tensor([[1, 1, 1, 0, 0]])
    found = model(rows, attention_mask=mask, sentence_ids=torch.zeros_like(rows)).pooler_output
    torch.testing.assert_close(found, model(shorter).pooler_output)
    assert not torch.allclose(found, model(rows).pooler_output)


def test_every_norm_of_the_document_encoder_has_the_epsilon_of_the_configuration(
    labse: Path, make_model: MakeModel
) -> None:
    for document_norm in ("post", "pre"):
        model = make_model(labse, document_norm=document_norm, document_positions=True, document_layer_norm_eps=0.5)
        norms = [module for module in model.hmde.document_encoder.modules() if isinstance(module, torch.nn.LayerNorm)]
        assert {norm.eps for norm in norms} == {0.5}


def test_more_sentences_than_positions_are_refused(labse: Path, make_model: MakeModel) -> None:
    model = make_model(labse, document_positions=True, max_sentences=2)
    assert model(torch.tensor([[2, 3, 2, 3]])).pooler_output.isfinite().all()
    with pytest.raises(ValueError, match="has 3 sentences, but this model has learned positions for 2 only"):
        model(torch.tensor([[2, 3, 2, 3, 2, 3]]))


@torch.no_grad()
def test_sentences_can_be_read_by_themselves_with_a_model_that_reads_passages(
    labse: Path, make_model: MakeModel
) -> None:
    row = torch.tensor([[2, 7, 8, 3, 2, 9, 3, 2, 10, 11, 12, 3]])
    options = {"sentence_pooling": "mean", "max_sentence_length": 40}
    together, alone = make_model(labse, passage_length=40, **options), make_model(labse, **options)
    expected = alone(row).sentence_embeddings
    torch.testing.assert_close(together(row, sentences_only=True).sentence_vectors, expected)
    assert not torch.allclose(together(row).sentence_embeddings, expected, atol=1e-2)


@torch.no_grad()
def test_a_passage_of_padding_alone_has_a_token_to_attend_to(labse: Path, make_model: MakeModel) -> None:
    """Not every runtime of exported models has a softmax over nothing."""
    model = make_model(labse, attn_implementation="sdpa", sentence_pooling="mean")
    masks = []
    model.hmde.sentence_encoder.register_forward_pre_hook(
        lambda _, __, inputs: masks.append(inputs["attention_mask"]), with_kwargs=True
    )
    passages = torch.tensor([[[2, 7, 3], [2, 8, 3]], [[2, 9, 3], [0, 0, 0]]])
    output = model.hmde.forward_by_passage(passages, None, torch.tensor([[3, 3], [3, 0]]))
    assert masks[0].tolist() == [[1, 1, 1], [1, 1, 1], [1, 1, 1], [1, 0, 0]]
    assert output.pooler_output.isfinite().all()
    assert not output.sentence_embeddings[1, 1].any()


def test_a_query_of_several_sentences_is_refused(model: HMDEForDocumentEmbedding) -> None:
    with pytest.raises(ValueError, match="query 1 has more than one sentence; tokenize queries with as_queries=True"):
        model.embed_queries(torch.tensor([[2, 7, 3, 0], [2, 3, 2, 3]]))


# --- lists of texts --------------------------------------------------------------------------------------------------


def embed_one_by_one(model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, documents: list[str]) -> torch.Tensor:
    with torch.no_grad():
        return torch.cat([model(**tokenizer(text, return_tensors="pt")).pooler_output for text in documents])


@pytest.mark.parametrize("max_tokens_per_batch", [1, 40, 16_384])
@pytest.mark.parametrize("texts_per_tokenization", [1, 4, 4096])
def test_documents_are_encoded_in_their_order_whatever_the_batches(
    model: HMDEForDocumentEmbedding,
    tokenizer: HMDETokenizer,
    documents: list[str],
    monkeypatch: pytest.MonkeyPatch,
    max_tokens_per_batch: int,
    texts_per_tokenization: int,
) -> None:
    monkeypatch.setattr(inference_hmde, "TEXTS_PER_TOKENIZATION", texts_per_tokenization)
    actual = model.encode_documents(
        documents, tokenizer, normalize=False, return_tensors="pt", max_tokens_per_batch=max_tokens_per_batch
    )
    torch.testing.assert_close(actual, embed_one_by_one(model, tokenizer, documents), rtol=1e-5, atol=1e-5)
    assert not actual.requires_grad


def test_queries_are_encoded_as_one_sentence_each(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, documents: list[str]
) -> None:
    actual = model.encode_queries(documents, tokenizer, normalize=False, return_tensors="pt", max_tokens_per_batch=40)
    with torch.no_grad():
        expected = [model.embed_queries(**tokenizer(text, as_queries=True, return_tensors="pt")) for text in documents]
    torch.testing.assert_close(actual, torch.cat(expected), rtol=1e-5, atol=1e-5)


def test_queries_are_read_as_documents_where_the_configuration_says_so(
    labse: Path, make_model: MakeModel, tokenizer: HMDETokenizer, documents: list[str], tmp_path: Path
) -> None:
    make_model(labse, query_path="document_encoder").save_pretrained(tmp_path)
    model = AutoModel.from_pretrained(tmp_path)
    queries = model.encode_queries(documents, tokenizer, max_tokens_per_batch=40)
    np.testing.assert_allclose(queries, model.encode_documents(documents, tokenizer), atol=1e-6)
    assert not np.allclose(queries, make_model(labse).encode_queries(documents, tokenizer), atol=0.1)
    rows = tokenizer(documents, padding=True, return_tensors="pt")
    with torch.no_grad():
        torch.testing.assert_close(model.embed_queries(**rows), model(**rows).pooler_output)
    with pytest.raises(TypeError, match="query_path is 'both'"):
        make_model(labse, query_path="both")


@pytest.mark.parametrize("encode", ["encode_documents", "encode_queries"])
def test_embeddings_are_unit_vectors_of_numpy_unless_asked_otherwise(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, documents: list[str], encode: str
) -> None:
    encode_texts = getattr(model, encode)
    unit = encode_texts(documents, tokenizer)
    assert isinstance(unit, np.ndarray)
    assert unit.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, rtol=1e-6)
    raw = encode_texts(documents, tokenizer, normalize=False)
    np.testing.assert_allclose(raw / np.linalg.norm(raw, axis=1, keepdims=True), unit, atol=1e-6)
    torch.testing.assert_close(encode_texts(documents, tokenizer, return_tensors="pt"), torch.from_numpy(unit))


def test_a_model_in_bfloat16_gives_vectors_in_float32(
    saved: Path, tokenizer: HMDETokenizer, documents: list[str]
) -> None:
    model = AutoModel.from_pretrained(saved, dtype=torch.bfloat16)
    vectors = model.encode_documents(documents, tokenizer)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)
    assert model.encode_documents(documents, tokenizer, return_tensors="pt").dtype == torch.float32


def test_the_language_of_the_documents_reaches_the_splitter(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer
) -> None:
    text = "Das steht in Kap. Drei. Ja."
    german, french = (model.encode_documents([text], tokenizer, language=code)[0] for code in ("de", "fr"))
    assert not np.allclose(german, french, atol=1e-3)
    mixed = model.encode_documents([text] * 3, tokenizer, language=["fr", "de", "fr"])
    np.testing.assert_allclose(mixed, [french, german, french], atol=1e-5)
    with pytest.raises(ValueError, match="2 texts came with 1 languages"):
        model.encode_documents([text] * 2, tokenizer, language=["de"])


def test_a_document_that_comes_twice_in_one_language_is_computed_once(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference_hmde, "TEXTS_PER_TOKENIZATION", 2)
    documents = ["Das ist z. B. so.", "Ja.", "Das ist z. B. so.", "Das ist z. B. so.", "Nein."]
    languages = ["de", "de", "de", "fr", "de"]
    expected = [model.encode_documents([text], tokenizer, language=code)[0] for text, code in zip(documents, languages)]
    rows = []
    handle = model.register_forward_pre_hook(
        lambda module, arguments, inputs: rows.append(len(inputs["input_ids"])), with_kwargs=True
    )
    actual = model.encode_documents(documents, tokenizer, language=languages)
    handle.remove()
    assert sum(rows) == 4
    np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize("encode", ["encode_documents", "encode_queries"])
def test_the_progress_bar_counts_texts_on_request(
    model: HMDEForDocumentEmbedding,
    tokenizer: HMDETokenizer,
    documents: list[str],
    capfd: pytest.CaptureFixture,
    encode: str,
) -> None:
    enable_progress_bar()  # which other tests of this process may have disabled
    getattr(model, encode)(documents, tokenizer)
    assert capfd.readouterr().err == ""
    getattr(model, encode)(documents, tokenizer, show_progress_bar=True)
    assert "6/6" in capfd.readouterr().err


@pytest.mark.parametrize(
    "text",
    ["", " \n\t", "\x00\x07", "\ud800", "\u200b", "[CLS]", "<s>", "[CLS] [SEP] [PAD]", "\u2028" * 50, "猫" * 9000],
    ids=lambda text: ascii(text[:20]),
)
def test_every_text_has_one_finite_embedding(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, text: str
) -> None:
    vectors = model.encode_documents([text, "The cat sat."], tokenizer)
    assert vectors.shape == (2, 32)
    assert np.isfinite(vectors).all()
    assert np.isfinite(model.encode_queries([text], tokenizer)).all()


def test_the_embedding_of_an_empty_document_is_that_of_an_empty_sentence(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer
) -> None:
    empty = model(torch.tensor([[tokenizer.cls_token_id, tokenizer.sep_token_id]])).pooler_output
    vectors = model.encode_documents(["", "\n"], tokenizer, normalize=False, return_tensors="pt")
    torch.testing.assert_close(vectors, empty.expand(2, -1), rtol=1e-5, atol=1e-5)


def test_no_text_at_all_has_no_embedding(model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer) -> None:
    assert model.encode_documents([], tokenizer).shape == model.encode_queries([], tokenizer).shape == (0, 32)


def test_texts_and_languages_come_as_any_iterable(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, documents: list[str]
) -> None:
    expected = model.encode_documents(documents, tokenizer, language=["de"] * len(documents))
    languages = np.array(["de"] * len(documents))
    assert np.array_equal(model.encode_documents(iter(documents), tokenizer, language=languages), expected)
    assert np.array_equal(model.encode_queries(iter(documents), tokenizer), model.encode_queries(documents, tokenizer))


def test_a_model_that_returns_tuples_encodes_too(
    labse: Path, make_model: Callable[..., HMDEForDocumentEmbedding], tokenizer: HMDETokenizer, documents: list[str]
) -> None:
    model, tuples = make_model(labse), make_model(labse, return_dict=False)
    assert isinstance(tuples(torch.tensor([[2, 3]])), tuple)
    for path in ("sentence_encoder", "document_encoder"):
        model.config.query_path = tuples.config.query_path = path
        for read in ("encode_documents", "encode_queries"):
            found = getattr(tuples, read)(documents, tokenizer)
            assert np.array_equal(found, getattr(model, read)(documents, tokenizer))
    assert tuples.explain("The cat.", documents, tokenizer) == model.explain("The cat.", documents, tokenizer)


def test_a_sentence_longer_than_the_sentence_encoder_has_positions_for_is_refused(
    labse: Path, make_model: Callable[..., HMDEForDocumentEmbedding]
) -> None:
    model = make_model(labse)
    tokenizer = HMDETokenizer.from_sentence_encoder(str(labse), max_sentence_length=700)
    assert model.encode_documents(["cat " * 510], tokenizer).shape == (1, 32)
    for read in (model.encode_documents, model.encode_queries):
        with pytest.raises(ValueError, match="has 513 tokens, but the sentence encoder has 512 positions; set the tok"):
            read(["cat " * 511], tokenizer)


@pytest.mark.parametrize("encode", ["encode_documents", "encode_queries"])
def test_texts_that_would_be_cut_are_refused_on_request(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, encode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference_hmde, "TEXTS_PER_TOKENIZATION", 2)
    call, short, long = getattr(model, encode), "The cat sat.", "cat " * 5000
    assert np.array_equal(call([short], tokenizer, truncation="error"), call([short], tokenizer))
    with pytest.raises(
        ValueError,
        match=r"text 4 \('cat cat .*'\) has \d+ tokens more .*max_sentences 32.* and 1 more texts are too long",
    ):
        call([short, short, "The dog.", "It sat.", long, long, short], tokenizer, truncation="error")
    with pytest.raises(ValueError, match="truncation is False; it must be True, or 'error'"):
        call([short], tokenizer, truncation=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_order_of_documents_does_not_depend_on_the_batches(
    saved: Path, tokenizer: HMDETokenizer, dtype: torch.dtype
) -> None:
    """But where scores are as near as the numbers of the model can tell."""
    model = AutoModel.from_pretrained(saved, dtype=dtype)
    words = " ".join(DOCUMENTS[:4]).split()
    texts = [" ".join(words[first : first + 9]) + "." for first in range(len(words) - 9)]
    scores = []
    for size in (1, 7, 64):
        batches = [texts[first : first + size] for first in range(0, len(texts), size)]
        vectors = np.concatenate([model.encode_documents(batch, tokenizer) for batch in batches])
        queries = np.concatenate([model.encode_queries(batch, tokenizer) for batch in batches])
        scores.append(queries @ vectors.T)
    assert scores[0].dtype == np.float32
    order = np.argsort(-scores[0], axis=1)[:, :10]
    for others in scores[1:]:
        there = np.take_along_axis(others, order, axis=1)
        assert np.diff(there, axis=1).max() < 2 * torch.finfo(dtype).eps


@pytest.mark.parametrize("encode", ["encode_documents", "encode_queries"])
def test_what_is_no_list_of_texts_is_refused(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, encode: str
) -> None:
    with pytest.raises(TypeError, match=r"got str; give a list of strings, \[text\] for a single one"):
        getattr(model, encode)("the cat", tokenizer)
    with pytest.raises(TypeError, match="got NoneType; give a list of strings"):
        getattr(model, encode)(None, tokenizer)
    with pytest.raises(TypeError, match="text 1 is int, not str"):
        getattr(model, encode)(["the cat", 7], tokenizer)
    with pytest.raises(ValueError, match="return_tensors is 'tf'; it must be 'np' or 'pt'"):
        getattr(model, encode)(["the cat"], tokenizer, return_tensors="tf")


def test_a_resized_vocabulary_is_saved_as_it_is(
    labse: Path, make_model: Callable[..., HMDEForDocumentEmbedding], tmp_path: Path
) -> None:
    model = make_model(labse)
    size = model.config.sentence_config.vocab_size + 3
    model.resize_token_embeddings(size)
    assert model.config.sentence_config.vocab_size == size
    model.save_pretrained(tmp_path)
    loaded = HMDEForDocumentEmbedding.from_pretrained(tmp_path)
    assert loaded.get_input_embeddings().num_embeddings == size
    row = torch.tensor([[model.config.start_token_id, size - 1]])
    assert torch.equal(loaded(row).pooler_output, model.eval()(row).pooler_output)


def test_other_word_embeddings_can_be_given(
    labse: Path, make_model: Callable[..., HMDEForDocumentEmbedding], tokenizer: HMDETokenizer
) -> None:
    model = make_model(labse).eval()
    words = torch.nn.Embedding.from_pretrained(model.get_input_embeddings().weight.flip(0))
    before = model.encode_queries(["The cat"], tokenizer)
    model.set_input_embeddings(words)
    assert model.get_input_embeddings() is words
    assert (model.encode_queries(["The cat"], tokenizer) != before).any()
