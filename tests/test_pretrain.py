"""Pretraining end to end, on tiny models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest
import torch
from accelerate.state import AcceleratorState
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import AutoModel, AutoTokenizer

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from tests.pretraining import in_processes, options, write_corpus
from training import pretrain
from training.articles import load_articles, row_of
from training.data import Triples, collate, concept_number
from training.dev_set import DevSet
from training.pretrain_objective import objective


@pytest.fixture(autouse=True)
def fresh_accelerator():
    """Accelerate keeps its settings in the process; each run of ours is a process of its own."""
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture(scope="module")
def corpus_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("pretrain"))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"query_weight": 1.0, "hard_negatives": "all", "symmetric": "true"},
        {"freeze": "sentence_encoder", "gradient_checkpointing": "true", "mixed_precision": "bf16"},
    ],
    ids=["paper", "query-all-symmetric", "frozen-checkpointed-bf16"],
)
def test_a_run_leaves_a_folder_that_the_auto_classes_open(corpus_folder, labse, tmp_path, changes):
    pretrain.main(options(corpus_folder, labse, tmp_path / "model", max_steps=4, **changes))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model", trust_remote_code=True)
    model = AutoModel.from_pretrained(tmp_path / "model", trust_remote_code=True)
    vectors = model.encode_documents(["The cat sat. It was warm."], tokenizer)
    assert np.isfinite(vectors).all()
    assert tokenizer.max_sentences == 4
    assert {"best", "checkpoints"} <= {path.name for path in (tmp_path / "model-training").iterdir()}
    card = ModelCard.load(tmp_path / "model" / "README.md")
    assert card.data.language == ["de", "en", "fr"]
    assert len(card.data.eval_results) == 2


def test_the_loss_falls_and_the_best_model_is_kept(corpus_folder, xlmr, tmp_path):
    architecture = {"num_document_attention_heads": 4, "sentence_pooling": "mean", "document_norm": "pre"}
    changes = {
        "architecture": json.dumps(architecture | {"document_dropout": 0.0}),
        "sentence_dropout": 0.0,  # in 32 dimensions it drowns what there is to learn
        "learning_rate": 3e-4,
        "epochs": 10,
        "query_weight": 0.5,
        "log_with": "tensorboard",
    }
    pretrain.main(options(corpus_folder, xlmr, tmp_path / "model", **changes))
    (log,) = (tmp_path / "model-training" / "logs" / "pretrain").glob("events*")
    events = EventAccumulator(str(log)).Reload()
    losses = [event.value for event in events.Scalars("document_loss")]
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])
    scores = {event.step: event.value for event in events.Scalars("dev_mrr")}
    best = max(scores, key=lambda step: (scores[step], step))
    tokenizer = HMDETokenizer.from_pretrained(tmp_path / "model")
    model = AutoModel.from_pretrained(tmp_path / "model")
    dev_set = DevSet(load_articles(corpus_folder), num_concepts=3, seed=42)
    assert dev_set.evaluate(model, tokenizer)["mrr"] == pytest.approx(scores[best], abs=1e-6)


@pytest.mark.parametrize(("scores", "best"), [((0.5, 0.9, 0.7), 4), ((0.9, 0.9, 0.7), 4), ((1.0, 0.9, 1.0), 8)])
def test_the_best_step_is_the_later_of_equals(scores, best):
    history = {step: {"mrr": score} for step, score in zip((0, 4, 8), scores, strict=True)}
    assert pretrain.Progress(step=8, history=history).best_step == best


def test_a_frozen_sentence_encoder_keeps_its_weights_and_the_document_encoder_does_not(corpus_folder, labse, tmp_path):
    pretrain.main(options(corpus_folder, labse, tmp_path / "model", freeze="sentence_encoder", max_steps=2))
    before = HMDEForDocumentEmbedding.from_sentence_encoder(labse, num_document_attention_heads=4).state_dict()
    after = load_file(tmp_path / "model-training" / "checkpoints" / "step-00000002" / "model.safetensors")
    for name, value in before.items():
        if "sentence_encoder" in name:
            assert torch.equal(after[f"model.{name}"], value)
    assert after["model.hmde.document_encoder.layers.0.attention_norm.bias"].abs().max() > 0  # it started at 0


def test_an_hmde_is_trained_on_from_where_it_stands(labse, tmp_path):
    start = str(tmp_path / "start")
    saved = HMDEForDocumentEmbedding.from_sentence_encoder(labse, num_document_attention_heads=4, max_sentences=7)
    saved.bfloat16().save_pretrained(start)
    HMDETokenizer.from_sentence_encoder(labse, max_sentences=7, query_prompt="query: ").save_pretrained(start)
    changes = {"architecture": {"temperature": 0.5}, "freeze": "word_embeddings", "sentence_dropout": 0.0}
    model, tokenizer = pretrain.build(pretrain.PretrainRecipe("corpus", "output", sentence_encoder=start, **changes))
    for name, weight in saved.state_dict().items():
        assert torch.equal(model.state_dict()[name], weight.float())
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}  # which small steps need
    assert model.config.temperature == 0.5
    assert tokenizer.max_sentences == model.config.max_sentences == 7
    assert tokenizer.query_prompt == "query: "
    fixed = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert fixed == {"hmde.sentence_encoder.embeddings.word_embeddings.weight"}


@pytest.mark.parametrize(
    ("architecture", "message"),
    [
        ('{"num_document_layers": 3}', "does not fit the weights of"),
        ('{"num_document_layers": 1}', "does not fit the weights of"),
        ('{"document_intermediate_size": 64}', "does not fit the weights of"),
        ('{"max_sentence": 4}', "no field max_sentence"),
    ],
)
def test_an_hmde_keeps_its_architecture(corpus_folder, labse, tmp_path, architecture, message):
    HMDEForDocumentEmbedding.from_sentence_encoder(labse, num_document_attention_heads=4).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=message):
        pretrain.main(options(corpus_folder, tmp_path, tmp_path / "model", architecture=architecture))


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(corpus_folder, labse, tmp_path, monkeypatch):
    """Interrupted in the middle of an epoch; with dropout, shuffling and drawn queries."""
    whole, halved = tmp_path / "whole", tmp_path / "halved"
    changes = {"query_weight": 1.0, "save_steps": 3, "max_steps": 8}
    pretrain.main(options(corpus_folder, labse, whole, **changes))

    class Interrupted(Exception):
        pass

    steps = []
    read = pretrain.Meter.read

    def interrupt(meter):
        steps.append(1)
        if len(steps) == 5:
            raise Interrupted
        return read(meter)

    with monkeypatch.context() as patch:
        patch.setattr(pretrain.Meter, "read", interrupt)
        with pytest.raises(Interrupted):
            pretrain.main(options(corpus_folder, labse, halved, **changes))
    assert not halved.exists()
    pretrain.main(options(corpus_folder, labse, halved, **changes, resume="true"))
    expected = load_file(tmp_path / "whole-training" / "checkpoints" / "step-00000008" / "model.safetensors")
    resumed = load_file(tmp_path / "halved-training" / "checkpoints" / "step-00000008" / "model.safetensors")
    assert all(torch.equal(resumed[name], value) for name, value in expected.items())


def test_the_objective_adds_up_what_the_recipe_asks_for(corpus_folder, labse):
    recipe = pretrain.PretrainRecipe(str(corpus_folder), "unused", str(labse), symmetric=True, query_weight=0.5)
    recipe.architecture = {"num_document_attention_heads": 4}
    model, tokenizer = pretrain.build(recipe)
    triples = Triples(corpus_folder, "train", both_sides=True)
    batch = collate([triples[place] for place in range(3)], tokenizer, both_sides=True)
    with torch.no_grad():
        embeddings = pretrain.TripleEncoder(model)(batch.documents, batch.queries)
    assert len(embeddings.documents) == 12
    torch.testing.assert_close(embeddings.queries, model.embed_queries(**batch.queries))
    losses = objective(embeddings, batch, recipe, temperature=0.05)
    assert set(losses) == {"document_loss", "reverse_loss", "query_loss"}
    alone = objective(embeddings, batch, pretrain.PretrainRecipe("", "", query_weight=1.0), 0.05)
    torch.testing.assert_close(losses["query_loss"], 0.5 * alone["query_loss"])
    torch.testing.assert_close(losses["document_loss"], alone["document_loss"])


def test_queries_are_the_anchors_title_or_one_of_its_sentences_and_change_with_the_epoch(corpus_folder):
    triples = Triples(corpus_folder, "train", both_sides=False, query_source="sentence", seed=1)
    first = [triples[place]["query"] for place in range(len(triples))]
    assert all(query in triples[place]["anchor"] for place, query in enumerate(first))
    assert first == [triples[place]["query"] for place in range(len(triples))]
    triples.set_epoch(1)
    assert first != [triples[place]["query"] for place in range(len(triples))]
    titles = Triples(corpus_folder, "train", both_sides=False, query_source="title")
    assert titles[0]["query"] == titles.article(titles[0]["concept_id"], titles[0]["anchor_language"])["title"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corpus": "nowhere"}, "no triples.parquet"),
        ({"sentence_encoder": "nowhere"}, "sentence_encoder: nowhere is no model folder"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"max_steps": 0}, "max_steps is 0"),
        ({"resume": "true"}, "no checkpoint to resume from"),
        ({"max_tokens_per_chunk": 0}, "max_tokens_per_chunk is 0"),
        ({"queue_size": -1}, "queue_size is -1"),
        ({"queue_momentum": 1.0}, "queue_momentum is 1.0; it must be at least 0 and below 1"),
        ({"mixup": "true", "freeze": "sentence_encoder"}, "mixup joins texts"),
        ({"batch_size": 1000}, "a batch of 1000 triples over all processes is more than there is"),
        ({"architecture": '{"max_sentence": 4}'}, "no field max_sentence"),
        ({"architecture": '{"num_document_attention_heads": 5}'}, "does not divide"),
    ],
)
def test_a_bad_recipe_is_refused_before_anything_is_written(corpus_folder, labse, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        pretrain.main(options(corpus_folder, labse, tmp_path / "model", **changes))
    assert not list(tmp_path.iterdir())


def test_an_article_table_without_articles_is_named(corpus_folder, labse, tmp_path):
    shutil.copytree(corpus_folder, tmp_path / "corpus")
    path = tmp_path / "corpus" / "articles" / "de.parquet"
    parquet.write_table(parquet.read_table(path).slice(0, 0), path)
    with pytest.raises(ValueError, match=r"de\.parquet has no article, but .* has triples of language 'de'"):
        pretrain.main(options(tmp_path / "corpus", labse, tmp_path / "model"))


def test_every_article_is_found_and_one_that_lacks_is_named(corpus_folder):
    articles = load_articles(corpus_folder)
    for language, table in articles.items():
        assert [row_of(articles, language, concept) for concept in table["concept_id"]] == list(range(len(table)))
    for concept in ("", "Q1 ", "R"):  # before, between and behind those there are
        with pytest.raises(ValueError, match=f"language 'en' lack concept {concept},"):
            row_of(articles, "en", concept)


@pytest.mark.parametrize("both_sides", [False, True])
def test_lengths_and_language_pairs_are_those_of_each_triple(corpus_folder, both_sides):
    triples = Triples(corpus_folder, "train", both_sides=both_sides)
    rows = [triples[place] for place in range(len(triples))]
    roles = ("anchor", "positive", "negative")
    assert triples.lengths().tolist() == [sum(len(row[role]) for role in roles) for row in rows]
    pairs = [f"{row['anchor_language']}-{row['positive_language']}" for row in rows]
    assert triples.language_pairs().tolist() == [sorted(set(pairs)).index(pair) for pair in pairs]


def test_more_processes_than_documents_are_refused(corpus_folder, labse, tmp_path, capfd):
    arguments = options(corpus_folder, labse, tmp_path / "model", batch_size=20)
    assert in_processes(2, lambda _: pretrain.main(arguments)) == [1, 1]
    assert "a batch of 40 triples over all processes is more than there is" in capfd.readouterr().err


def test_mixed_documents_hold_the_first_halves_of_two_triples_and_share_their_concepts(corpus_folder, tokenizer):
    triples = Triples(corpus_folder, "train", both_sides=False)
    chosen = [triples[place] for place in (0, 9, 20)]
    plain, mixed = (collate(chosen, tokenizer, both_sides=False, mixup=mixup) for mixup in (False, True))
    start = tokenizer.start_token_id

    def sentences(batch, row):
        ids = batch.documents["input_ids"][row][batch.documents["attention_mask"][row].bool()]
        return [tuple(part.tolist()) for part in ids.tensor_split(torch.where(ids == start)[0])[1:]]

    half = tokenizer.max_sentences // 2
    orders = set()
    for role in range(3):
        for triple in range(3):
            one, other = (sentences(plain, 3 * role + place)[:half] for place in (triple, (triple + 1) % 3))
            found = sentences(mixed, 3 * role + triple)
            assert found in (one + other, other + one)
            orders.add(found == one + other)
    assert orders == {True, False}
    assert mixed.concepts.tolist() == [
        [plain.concepts[triple], plain.concepts[(triple + 1) % 3]] for triple in range(3)
    ]
    assert (
        collate(chosen, tokenizer, both_sides=False, mixup=True)
        .documents["input_ids"]
        .equal(mixed.documents["input_ids"])
    )


def test_a_concept_has_the_same_number_in_every_batch_and_no_other_concept_has_it():
    assert concept_number("Q1") == concept_number("Q1")
    assert len({concept_number(f"Q{number}") for number in range(1000)} | {concept_number(None)}) == 1001


def test_a_run_with_every_option_of_the_objective_and_the_batches_trains(corpus_folder, labse, tmp_path):
    changes = {
        "mixup": "true",
        "queue_size": 8,
        "queue_momentum": 0.9,
        "group_by_length": "true",
        "language_exponent": 0.5,
        "learn_temperature": "true",
        "ema_decay": 0.5,
        "device_tflops": 1.0,
        "max_tokens_per_chunk": 200,
        "query_weight": 1.0,
    }
    pretrain.main(options(corpus_folder, labse, tmp_path / "model", max_steps=3, **changes))
    config = HMDEForDocumentEmbedding.from_pretrained(tmp_path / "model-training" / "best").config
    assert config.temperature == pytest.approx(0.05, rel=0.1)


def test_an_unknown_key_is_an_error(corpus_folder, labse, tmp_path, capsys):
    (tmp_path / "recipe.yaml").write_text("learning_speed: 1\n")
    with pytest.raises(SystemExit):
        pretrain.main(["--config", str(tmp_path / "recipe.yaml"), *options(corpus_folder, labse, tmp_path / "model")])
    assert "learning_speed" in capsys.readouterr().err


def test_an_output_that_exists_is_not_overwritten(corpus_folder, labse, tmp_path):
    (tmp_path / "model").mkdir()
    with pytest.raises(ValueError, match="exists"):
        pretrain.main(options(corpus_folder, labse, tmp_path / "model"))


def test_dev_concepts_are_ranked_as_a_loop_over_all_documents_ranks_them(corpus_folder, model, tokenizer):
    articles = load_articles(corpus_folder)
    dev_set = DevSet(articles, num_concepts=5, seed=0)
    assert {concept for _, concept in dev_set.articles} > {"Q9", "Q10", "Q11"}
    assert {query[1] for query, _ in dev_set.pairs} == {"Q9", "Q10", "Q11"}
    reciprocal = []
    for (language, concept), (other, _) in dev_set.pairs:
        query = model.encode_queries([dev_set.articles[language, concept]["title"]], tokenizer)[0]
        scores = {}
        for (candidate_language, candidate), article in dev_set.articles.items():
            if candidate_language == other:
                scores[candidate] = float(model.encode_documents([article["text"]], tokenizer)[0] @ query)
        better = [candidate for candidate, score in scores.items() if score > scores[concept] + 1e-6]
        reciprocal.append(1 / (1 + len(better)))
    assert dev_set.evaluate(model, tokenizer)["title_mrr"] == pytest.approx(np.mean(reciprocal))
