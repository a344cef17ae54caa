"""A saved folder as a SentenceTransformer: documents, queries, prompts, training, saving."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tomllib
import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from transformers import AutoModel, AutoTokenizer

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer


@pytest.fixture(scope="module")
def tokenizer(xlmr: Path) -> HMDETokenizer:
    """With e5's kind of prompts, of which it knows no token."""
    return HMDETokenizer.from_sentence_encoder(str(xlmr), sentence_prompt="der: ", query_prompt="die: ")


@pytest.fixture(scope="module")
def model(xlmr: Path, make_model: Callable[..., HMDEForDocumentEmbedding]) -> HMDEForDocumentEmbedding:
    return make_model(xlmr, sentence_pooling="mean")


@pytest.fixture(scope="module")
def folder(model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(model, tokenizer, tmp_path_factory.mktemp("saved"))


def save(model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, folder: Path) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def load(folder: Path | str, **options: object) -> SentenceTransformer:
    return SentenceTransformer(str(folder), trust_remote_code=True, device="cpu", **options)


def assert_close(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_documents_and_queries_are_encoded_as_the_model_itself_does(
    folder: Path, model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, documents: list[str]
) -> None:
    loaded = load(folder)
    as_documents = model.encode_documents(documents, tokenizer, normalize=False)
    as_queries = model.encode_queries(documents, tokenizer, normalize=False)
    assert not np.allclose(as_documents, as_queries, atol=0.1)
    assert_close(loaded.encode_document(documents), as_documents)
    assert_close(loaded.encode_query(documents), as_queries)
    assert_close(loaded.encode(documents, batch_size=2), as_documents)
    assert_close(loaded.encode_query(documents[0]), as_queries[0])
    assert loaded.get_embedding_dimension() == model.config.hidden_size
    assert loaded.similarity_fn_name == "cosine"


def test_another_path_of_queries_is_the_models_own(
    xlmr: Path,
    make_model: Callable[..., HMDEForDocumentEmbedding],
    tokenizer: HMDETokenizer,
    documents: list[str],
    tmp_path: Path,
) -> None:
    model = make_model(xlmr, sentence_pooling="mean", query_path="document_encoder")
    loaded = load(save(model, tokenizer, tmp_path))
    assert_close(loaded.encode_query(documents), model.encode_queries(documents, tokenizer, normalize=False))
    assert_close(loaded.encode_document(documents), model.encode_documents(documents, tokenizer, normalize=False))


def test_each_document_may_come_with_its_language(
    folder: Path, model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer
) -> None:
    text = "Er hat mind. Drei Hunde. Sie sah ihn."
    texts = [text, f"{text} {text}", "Ja.", text]
    languages = ["fr", "de", "de", "de"]
    expected = model.encode_documents(texts, tokenizer, language=languages, normalize=False)
    assert not np.allclose(expected[0], expected[3])
    inputs = [{"text": text, "language": code} for text, code in zip(texts, languages)]
    for batch_size in (1, 32):
        assert_close(load(folder).encode_document(inputs, batch_size=batch_size), expected)
    mixed = [{"text": texts[0], "language": "fr"}, *texts[1:3], {"text": texts[3]}]
    assert_close(load(folder).encode_document(mixed, language="de"), expected)


def test_a_list_of_languages_is_refused_as_texts_are_sorted_by_length(folder: Path) -> None:
    for options in ({"language": ["de", "fr"]}, {"processing_kwargs": {"text": {"language": ["de", "fr"]}}}):
        with pytest.raises(ValueError, match="give each text its own"):
            load(folder).encode_document(["Ja.", "Nein."], **options)


def test_processing_options_reach_the_tokenizer(folder: Path, documents: list[str]) -> None:
    loaded = load(folder)
    for options in ({"text": {"max_length": 7}}, {"common": {"max_length": 7}, "text": {"truncation": True}}):
        assert loaded.preprocess(documents, processing_kwargs=options)["input_ids"].shape[1] == 7
    text = "Er hat mind. Drei Hunde. Sie sah ihn."
    expected = loaded.encode_document([text], language="de")
    assert_close(loaded.encode_document([text], processing_kwargs={"text": {"language": "de"}}), expected)
    assert not np.allclose(loaded.encode_document([text]), expected)
    with pytest.raises(ValueError, match="processing_kwargs has audio; HMDE reads 'text' and 'common' only"):
        loaded.encode(documents, processing_kwargs={"audio": {}})
    with pytest.raises(ValueError, match="the tokenizer has no option max_lenght; help"):
        loaded.encode(documents, processing_kwargs={"text": {"max_lenght": 7}})


@pytest.mark.parametrize("bad", [{"texts": "a"}, {"text": None}, {"text": "a", "title": "b"}, ("a", "b"), 7], ids=str)
def test_what_is_no_text_is_refused_with_what_is_taken(folder: Path, bad: object) -> None:
    with pytest.raises(ValueError, match="give a string or"):
        load(folder).preprocess([bad])


def test_the_vectors_of_a_texts_sentences_are_its_token_embeddings(
    xlmr: Path,
    make_model: Callable[..., HMDEForDocumentEmbedding],
    tokenizer: HMDETokenizer,
    tmp_path: Path,
) -> None:
    texts = ["Ja. Der Hund sah sie.", "Der Hund."]
    model = make_model(xlmr, sentence_pooling="mean")
    loaded = load(save(model, tokenizer, tmp_path))
    vectors = loaded.encode(texts, output_value="token_embeddings")
    tokenizer, model = loaded[0].tokenizer, loaded[0].model
    _, sentences = model.encode_documents(texts, tokenizer, sentences=True)
    assert [len(rows) for rows in vectors] == [2, 1]
    for rows, document in zip(vectors, sentences):
        assert_close(torch.nn.functional.normalize(rows, dim=-1).cpu().numpy(), document.vectors.numpy())


def test_encode_reads_documents_unless_told_that_they_are_queries(folder: Path, documents: list[str]) -> None:
    loaded = load(folder)
    assert_close(loaded.encode(documents, prompt_name="query"), loaded.encode_document(documents))
    assert_close(loaded.encode(documents, task="query"), loaded.encode_query(documents))


def test_a_prompt_of_the_users_stands_before_each_text(folder: Path, documents: list[str]) -> None:
    loaded = load(folder)
    prompted = loaded.encode_query(documents, prompt="der Hund ")
    assert_close(prompted, loaded.encode_query(["der Hund " + text for text in documents]))


def test_what_max_seq_length_leaves_out_does_not_count(folder: Path, documents: list[str], tmp_path: Path) -> None:
    loaded = load(folder)
    assert loaded.max_seq_length == 32 * 128
    loaded.max_seq_length = 12
    features = loaded.preprocess(documents)
    assert features["input_ids"].shape[1] == 12
    loaded.save(str(tmp_path))
    assert load(tmp_path).max_seq_length == 12


def test_the_weights_are_there_once(folder: Path, model: HMDEForDocumentEmbedding) -> None:
    weights = [file.relative_to(folder) for file in folder.rglob("*") if file.suffix in (".safetensors", ".bin")]
    assert weights == [Path("model.safetensors")]
    loaded = load(folder)
    assert sum(each.numel() for each in loaded.parameters()) == model.num_parameters()
    assert len({each.data_ptr() for each in loaded.parameters()}) == len(list(model.parameters()))


def test_the_folder_is_opened_where_its_code_is_trusted_and_by_torch_only(folder: Path) -> None:
    with pytest.raises(ValueError, match="trust_remote_code"):
        SentenceTransformer(str(folder))
    with pytest.raises(ValueError, match="backend is 'onnx'"):
        load(folder, backend="onnx")


def test_saved_again_it_is_the_same_and_keeps_what_the_user_set(
    folder: Path, documents: list[str], tmp_path: Path
) -> None:
    loaded = load(folder, prompts={"query": "der "}, model_kwargs={"dtype": torch.float32})
    loaded.save_pretrained(str(tmp_path))
    assert {file.name for file in folder.glob("*.py")} == {file.name for file in tmp_path.glob("*.py")}
    assert json.loads((tmp_path / "modules.json").read_text()) == json.loads((folder / "modules.json").read_text())
    again = load(tmp_path)
    assert again.prompts["query"] == "der "
    assert_close(again.encode_query(documents), loaded.encode_query(documents))
    assert_close(again.encode_document(documents), loaded.encode_document(documents))


def test_it_trains_with_the_sentence_transformer_trainer(folder: Path, documents: list[str], tmp_path: Path) -> None:
    loaded = load(folder)
    for module in loaded.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0  # whose noise would hide that so small a model learns
    pairs = {"anchor": [text.split()[0] for text in documents[:4]], "positive": documents[:4]}
    loss = MultipleNegativesRankingLoss(loaded)
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path / "training"),
        router_mapping={"anchor": "query", "positive": "document"},
        max_steps=20,
        per_device_train_batch_size=4,
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=0,
    )
    before = {name: weight.clone() for name, weight in loaded.state_dict().items()}
    trainer = SentenceTransformerTrainer(loaded, args=arguments, train_dataset=Dataset.from_dict(pairs), loss=loss)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])
    moved = {name for name, weight in loaded.state_dict().items() if not torch.equal(weight, before[name])}
    for part in ("sentence_encoder.embeddings.word_embeddings", "document_encoder.layers.0.attention.query"):
        assert f"0.model.hmde.{part}.weight" in moved

    loaded.save_pretrained(str(tmp_path / "trained"))
    expected = loaded.encode_document(documents)
    assert_close(load(tmp_path / "trained").encode_document(documents), expected)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "trained", trust_remote_code=True)
    flat = AutoModel.from_pretrained(tmp_path / "trained", trust_remote_code=True)
    assert_close(flat.encode_documents(documents, tokenizer, normalize=False), expected)


def test_training_reads_as_queries_only_the_columns_that_the_router_mapping_names(
    folder: Path, model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, documents: list[str]
) -> None:
    loaded = load(folder).eval()
    with torch.no_grad():
        for task, expected in (
            ("query", model.encode_queries(documents, tokenizer, normalize=False)),
            (None, model.encode_documents(documents, tokenizer, normalize=False)),
        ):
            features = loaded.preprocess(documents, task=task)
            assert_close(loaded(features)["sentence_embedding"].numpy(), expected)


def test_what_a_folder_needs_is_checked_before_its_weights_are_read(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, folder: Path, tmp_path: Path
) -> None:
    load(folder).save_pretrained(str(tmp_path / "again"))
    save(model, tokenizer, tmp_path / "newer")
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    needed = dict(re.fullmatch(r"([a-z_]+)(.*)", each).groups() for each in project["dependencies"])
    needed["python"] = project["requires-python"]
    for saved in ("again", "newer"):
        config = json.loads((tmp_path / saved / "config_sentence_transformers.json").read_text())
        assert config["requirements"] == {name: needed[name] for name in config["requirements"]}
    config["requirements"]["sentencex"] = ">=1000"
    (tmp_path / "newer" / "config_sentence_transformers.json").write_text(json.dumps(config))
    (tmp_path / "newer" / "model.safetensors").unlink()
    with pytest.raises(ImportError, match=r"sentencex>=1000, but sentencex==.* is installed"):
        load(tmp_path / "newer")


def test_what_texts_lose_is_counted_on_request(folder: Path) -> None:
    options = {"text": {"return_truncated": True}}
    counted = load(folder).preprocess(["Le chat dort.", "chat " * 9000], processing_kwargs=options)
    assert counted["num_truncated_tokens"].tolist()[0] == 0 < counted["num_truncated_tokens"].tolist()[1]


def test_vectors_of_a_model_in_half_precision_are_compared_in_float32(folder: Path, documents: list[str]) -> None:
    half = load(folder, model_kwargs={"dtype": torch.bfloat16})
    for encode in (half.encode_document, half.encode_query):
        vectors = encode(documents, convert_to_tensor=True)
        assert half.similarity(vectors, vectors).dtype == vectors.dtype == torch.float32
