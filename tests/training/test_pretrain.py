"""Pretraining end to end, on tiny models."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pyarrow.parquet as parquet
import pytest
import torch
from accelerate import Accelerator
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import AutoModel, AutoTokenizer

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from tests.paths import REPOSITORY
from tests.pretraining import as_arguments, options
from training import pretrain
from training.data.articles import load_articles, row_of
from training.data.batches import collate, integer_of
from training.data.dev_set import DevSet, ranks_of
from training.data.queries import QueryDraw
from training.data.triples import Triples
from training.encoder import TwoPathEncoder
from training.loop.loop import Progress
from training.loop.meter import Meter
from training.losses import InfoNCE, Queries, weighted_losses
from training.losses.batch import BatchVectors
from training.models import build
from training.pretrain_recipe import PretrainRecipe


@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param(
            {
                "losses.info_nce.symmetric": "true",
                "losses.info_nce.hard_negatives": "all",
                "losses.queries.hard_negatives": "all",
            },
            marks=pytest.mark.slow,
        ),
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
    assert {"kept", "checkpoints"} <= {path.name for path in (tmp_path / "model-training").iterdir()}
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
        "losses.queries.weight": 0.5,
        "log_with": "tensorboard",
    }
    pretrain.main(options(corpus_folder, xlmr, tmp_path / "model", **changes))
    (log,) = (tmp_path / "model-training" / "logs" / "pretrain").glob("events*")
    events = EventAccumulator(str(log)).Reload()
    losses = [event.value for event in events.Scalars("document_loss")]
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])
    for name in ("query_loss", "documents_per_second", "tokens_per_second"):
        assert all(event.value > 0 for event in events.Scalars(name))
    scores = {event.step: event.value for event in events.Scalars("dev_mrr")}
    best = max(scores, key=lambda step: (scores[step], step))
    tokenizer = HMDETokenizer.from_pretrained(tmp_path / "model")
    model = AutoModel.from_pretrained(tmp_path / "model")
    dev_set = DevSet(load_articles(corpus_folder), num_concepts=3, seed=42)
    assert dev_set.evaluate(model, tokenizer)["mrr"] == pytest.approx(scores[best], abs=1e-6)


def test_a_run_that_learnt_nothing_says_so(corpus_folder, labse, tmp_path, monkeypatch, capsys):
    scores = iter([0.9, 0.8])
    monkeypatch.setattr(
        DevSet, "evaluate", lambda *_: dict.fromkeys(("document_mrr", "title_mrr", "mrr"), next(scores))
    )
    pretrain.main(options(corpus_folder, labse, tmp_path / "model", max_steps=1))
    assert "the model of step 0 of 1; no step was better" in capsys.readouterr().out


@pytest.mark.parametrize(("scores", "best"), [((0.5, 0.9, 0.7), 4), ((0.9, 0.9, 0.7), 4), ((1.0, 0.9, 1.0), 8)])
def test_the_kept_step_is_the_later_of_equals(scores, best):
    history = {step: {"mrr": score} for step, score in zip((0, 4, 8), scores, strict=True)}
    assert Progress("mrr", step=8, history=history).kept_step == best
    assert Progress(None, step=8, history=history).kept_step == 8


def test_a_frozen_sentence_encoder_keeps_its_weights_and_the_document_encoder_does_not(corpus_folder, labse, tmp_path):
    changes = {"freeze": "sentence_encoder", "max_steps": 2, "keep": "last"}
    pretrain.main(options(corpus_folder, labse, tmp_path / "model", **changes))
    before = HMDEForDocumentEmbedding.from_sentence_encoder(labse, num_document_attention_heads=4).state_dict()
    after = load_file(tmp_path / "model" / "model.safetensors")
    for name, value in before.items():
        if "sentence_encoder" in name:
            assert torch.equal(after[name], value)
    assert after["hmde.document_encoder.layers.0.attention_norm.bias"].abs().max() > 0  # it started at 0
    checkpoint = load_file(tmp_path / "model-training" / "checkpoints" / "step-00000002" / "model.safetensors")
    assert checkpoint.keys() == {f"model.{name}" for name in before if "document_encoder" in name}


def test_an_hmde_is_trained_on_from_where_it_stands(labse, tmp_path):
    start = str(tmp_path / "start")
    saved = HMDEForDocumentEmbedding.from_sentence_encoder(labse, num_document_attention_heads=4, max_sentences=7)
    saved.bfloat16().save_pretrained(start)
    HMDETokenizer.from_sentence_encoder(labse, max_sentences=7, query_prompt="query: ").save_pretrained(start)
    changes = {"architecture": {"temperature": 0.5}, "freeze": "word_embeddings", "sentence_dropout": 0.0}
    model, tokenizer = build(PretrainRecipe(corpus="corpus", output="output", sentence_encoder=start, **changes))
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


@pytest.mark.parametrize("path", ["sentence_encoder", "document_encoder", "both"])
def test_a_query_is_encoded_on_the_path_that_the_recipe_names(corpus_folder, labse, path):
    recipe = PretrainRecipe(corpus="", output="", sentence_encoder=str(labse))
    recipe.architecture = {"num_document_attention_heads": 4}
    model, tokenizer = build(recipe)
    model.eval()
    triples = Triples(corpus_folder, "train", symmetric=False)
    chosen = [triples[index] for index in range(3)]
    batch = collate(chosen, triples.roles, tokenizer, query_path=path)
    with torch.no_grad():
        vectors = BatchVectors(TwoPathEncoder(model)(batch.rows), batch, temperature=0.05)
        losses = weighted_losses(vectors, [InfoNCE(), Queries()])
    queries = [triple["query"] for triple in chosen]
    by_path = {
        "sentence_encoder": model.encode_queries(queries, tokenizer, return_tensors="pt"),
        "document_encoder": model.encode_documents(queries, tokenizer, return_tensors="pt"),
    }
    texts = {role: [triple[role]["text"] for triple in chosen] for role in ("positive", "negative")}
    languages = {role: [triple[role]["language"] for triple in chosen] for role in texts}
    documents = {
        role: model.encode_documents(texts[role], tokenizer, language=languages[role], return_tensors="pt")
        for role in texts
    }
    expected = []
    for name, vectors in by_path.items():
        if path in (name, "both"):
            for row, vector in enumerate(vectors):
                candidates = [
                    document
                    for document, triple in zip(documents["positive"], chosen)
                    if triple is chosen[row] or triple["concept_id"] != chosen[row]["concept_id"]
                ]
                scores = torch.stack([*candidates, documents["negative"][row]]) @ vector / 0.05
                expected.append(scores.logsumexp(0) - documents["positive"][row] @ vector / 0.05)
    torch.testing.assert_close(losses["query_loss"], torch.stack(expected).mean(), rtol=1e-4, atol=1e-4)


def test_tokens_are_counted_as_tokens_where_sentence_vectors_are_kept(corpus_folder, labse, tmp_path, monkeypatch):
    work = []
    add = Meter.add

    def note(meter, losses, batch_work):
        work.append(batch_work)
        add(meter, losses, batch_work)

    monkeypatch.setattr(Meter, "add", note)
    changes = {"freeze": "sentence_encoder", "max_steps": 1, "gradient_accumulation_steps": 1, "seed": 3}
    pretrain.main(options(corpus_folder, labse, tmp_path / "kept", **changes))
    pretrain.main(options(corpus_folder, labse, tmp_path / "read", **(changes | {"freeze": "nothing"})))
    kept, read = work
    assert kept.documents == read.documents == 12
    assert kept.tokens == read.tokens > 12 * 4  # documents of at least as many tokens as sentences


def test_queries_are_the_anchors_title_or_one_of_its_sentences_and_change_with_the_epoch(corpus_folder):
    triples = Triples(corpus_folder, "train", symmetric=False, queries=QueryDraw("sentence"), seed=1)
    first = [triples[index]["query"] for index in range(len(triples))]
    assert all(query in triples[index]["anchor"]["text"] for index, query in enumerate(first))
    assert first == [triples[index]["query"] for index in range(len(triples))]
    triples.set_epoch(1)
    assert first != [triples[index]["query"] for index in range(len(triples))]
    titles = Triples(corpus_folder, "train", symmetric=False, queries=QueryDraw("title"))
    assert titles[0]["query"] == titles[0]["anchor"]["title"]


def test_queries_may_be_of_the_positives_language(corpus_folder):
    def examples(**options):
        triples = Triples(corpus_folder, "train", symmetric=False, queries=QueryDraw(**options))
        return [triples[index] for index in range(len(triples))]

    for triple in examples(source="sentence", language="positive"):
        assert triple["query"] in triple["positive"]["text"]
    for triple in examples(source="title", language="positive"):
        assert triple["query"] == triple["positive"]["title"]
    asked = {
        role
        for triple in examples(source="title", language="both")
        for role in ("anchor", "positive")
        if triple["query"] == triple[role]["title"]
    }
    assert asked == {"anchor", "positive"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corpus": "nowhere"}, "no triples.parquet"),
        ({"sentence_encoder": "nowhere"}, "sentence_encoder: nowhere does not open"),
        ({"batch_size": 0}, r'"batch_size":\s.*v>0'),
        ({"max_steps": 0}, r'"max_steps":(.|\s)*v>0'),
        ({"seed": -1}, r'"seed":\s.*v>=0'),
        ({"resume": "true"}, "no checkpoint to resume from"),
        ({"max_tokens_per_chunk": 0}, r'"max_tokens_per_chunk":\s.*v>0'),
        ({"sentence_dropout": 1.0}, r"Not of type Share: does not conform"),
        ({"language_exponent": -1.0}, r'"language_exponent":\s.*v>=0'),
        ({"batch_size": 1000}, "a batch of 1000 examples over all processes is more than there are"),
        ({"architecture": '{"max_sentence": 4}'}, "^HMDEConfig has no field max_sentence"),
        ({"tokenizer": '{"max_sentences": 4}'}, "^tokenizer: max_sentences belongs to architecture"),
        ({"architecture": '{"num_document_attention_heads": 5}'}, "does not divide"),
        ({"losses.info_nce.weight": -1.0}, "PositiveFloat"),
        ({"output": ""}, "^output is empty; name a folder to write"),
        ({"output": "."}, "exists; remove it and .*-training, name another output"),
        ({"learning_speed": 1}, "learning_speed"),
        ({"freeze": "sentence_encoder", "lora.rank": 2}, "lora trains the sentence_encoder, and freeze leaves it"),
        ({"lora.rank": 0}, "rank"),
    ],
)
def test_a_bad_recipe_is_refused_before_anything_is_written(
    corpus_folder, labse, tmp_path, monkeypatch, changes, message
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        pretrain.main([*options(corpus_folder, labse, tmp_path / "model"), *as_arguments(changes)])
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


@pytest.mark.parametrize("symmetric", [False, True])
def test_language_pairs_are_those_of_each_triple(corpus_folder, symmetric):
    triples = Triples(corpus_folder, "train", symmetric=symmetric)
    rows = [triples[index] for index in range(len(triples))]
    pairs = [f"{row['anchor_language']}-{row['positive_language']}" for row in rows]
    assert triples.language_pairs().tolist() == [sorted(set(pairs)).index(pair) for pair in pairs]


def test_a_concept_has_the_same_integer_in_every_batch_and_no_other_concept_has_it():
    assert integer_of("Q1") == integer_of("Q1")
    assert len({integer_of(f"Q{concept}") for concept in range(1000)}) == 1000


def test_a_corpus_without_dev_concepts_is_named_before_training(corpus_folder):
    articles = load_articles(corpus_folder)
    train_articles = {
        language: table.filter(lambda article: article["split"] == "train").flatten_indices()
        for language, table in articles.items()
    }
    with pytest.raises(ValueError, match="no concept of the dev split"):
        DevSet(train_articles, num_concepts=5, seed=0)


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


def test_vectors_that_are_all_the_same_find_nothing():
    assert ranks_of(np.zeros((1, 3)), np.array([0]), np.ones((1, 3), bool)).tolist() == [3]


def test_the_papers_recipe_keeps_its_last_step_and_clips_nothing(corpus_folder, labse, tmp_path, monkeypatch, capsys):
    norms = []
    clip = Accelerator.clip_grad_norm_
    monkeypatch.setattr(
        Accelerator, "clip_grad_norm_", lambda self, weights, norm: norms.append(norm) or clip(self, weights, norm)
    )
    changes = {"max_steps": 2, "eval_steps": 1, "save_steps": 2, "warmup_steps": 1}
    paper = ["--config", str(REPOSITORY / "configuration" / "pretrain" / "paper.yaml")]
    pretrain.main([*paper, *options(corpus_folder, labse, tmp_path / "model", **changes)])
    assert norms == [math.inf, math.inf]
    assert f"wrote {tmp_path / 'model'}: the model of step 2 of 2" in capsys.readouterr().out
    kept, last = (
        load_file(path / "model.safetensors")
        for path in (tmp_path / "model", tmp_path / "model-training" / "checkpoints" / "step-00000002")
    )
    assert all(torch.equal(last[f"model.{name}"], weight) for name, weight in kept.items())
