"""T-MDE: the decoder, its loss and the distance constraint against the equations, written out."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from replications.sentences.batches import IGNORED, SentenceBatch
from replications.sentences.losses import PairVectors
from replications.sentences.pairs import Pair
from replications.t_mde.data import TranslationCollator
from replications.t_mde.encoder import TranslatingEncoder
from replications.t_mde.losses import EPSILON, Distance, Translation, distance_loss, drawn_by_lot, translation_loss
from replications.t_mde.pretrain import TMDELosses, TMDERecipe, tmde_encoder
from tests.sentence_pairs import TMDE_ARCHITECTURE
from tests.tiny_encoders import randomise, unigram_tokenizer

START = {"corpus": "", "output": "", "vocabulary_size": 60, "max_length": 100}


def recipe(distance: bool = False, bottleneck: bool = True, **changes: object) -> TMDERecipe:
    losses = TMDELosses(translation=Translation(bottleneck=bottleneck), distance=Distance() if distance else None)
    return TMDERecipe(**(START | {"losses": losses, "architecture": TMDE_ARCHITECTURE} | changes))


def encoder_of(recipe: TMDERecipe) -> TranslatingEncoder:
    torch.manual_seed(0)
    encoder = tmde_encoder(recipe, unigram_tokenizer()).eval()
    randomise(encoder, seed=1)
    return encoder


def collator(both_sides: bool = False) -> TranslationCollator:
    return TranslationCollator(unigram_tokenizer(), 100, ["en", "es"], both_sides)


def distance_of(sentences: Tensor, options: Distance, concepts: Tensor, languages: Tensor) -> Tensor:
    batch = SentenceBatch({}, {}, concepts, languages, [])
    return distance_loss(PairVectors({"sentences": sentences}, batch), options)


def pair(index: int = 0, languages: tuple[str, str] = ("de", "en"), **changes: object) -> Pair:
    values = {"first": "Die Katze lag.", "second": "The cat sat there."}
    return Pair(id=f"p{index}", name=f"p{index}", languages=languages, seed=index, **(values | changes))


PAIRS = [pair(0), pair(1, ("fr", "en"), first="Le chat dort ici."), pair(2, ("es", "it"), first="Hund", second="cat")]


def attention(queries: Tensor, keys: Tensor, values: Tensor, heads: int) -> Tensor:
    """Equations 4.1 and 4.2 without the projections, head by head, row by row."""
    width = queries.shape[1] // heads
    outputs = []
    for query_index, query in enumerate(queries):
        parts = []
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            scores = [(query[part] @ key[part]).item() / math.sqrt(width) for key in keys[query_index]]
            total = sum(math.exp(score) for score in scores)
            parts.append(
                sum(math.exp(score) / total * value[part] for score, value in zip(scores, values[query_index]))
            )
        outputs.append(torch.cat(parts))
    return torch.stack(outputs)


def slow_decoder(encoder: TranslatingEncoder, seen: Tensor, language: int, tokens: list[int]) -> Tensor:
    """The decoder of one row, as section 4.2.1 has it: (states, hidden) and tokens -> logits (tokens, vocabulary)."""
    decoder = encoder.decoder
    model, layer = decoder.layer, decoder.layer.encoder.layer[0]
    memory = torch.stack([decoder.joined(torch.cat([state, decoder.languages.weight[language]])) for state in seen])
    embeddings, first = model.embeddings, model.config.pad_token_id + 1
    states = torch.stack(
        [
            embeddings.word_embeddings.weight[token]
            + embeddings.position_embeddings.weight[first + place]
            + embeddings.token_type_embeddings.weight[0]
            for place, token in enumerate(tokens)
        ]
    )
    states = embeddings.LayerNorm(states)

    def attend(part, queries: Tensor, seen: list[Tensor]) -> Tensor:
        heads = model.config.num_attention_heads
        keys, values = [part.self.key(rows) for rows in seen], [part.self.value(rows) for rows in seen]
        return queries + part.output.dense(attention(part.self.query(part.LayerNorm(queries)), keys, values, heads))

    before = layer.attention.LayerNorm(states)
    states = attend(layer.attention, states, [before[: place + 1] for place in range(len(tokens))])
    states = attend(layer.crossattention, states, [memory] * len(tokens))
    states = states + layer.output.dense(torch.relu(layer.intermediate.dense(layer.intermediate.LayerNorm(states))))
    return decoder.lm_head(model.LayerNorm(states))


@torch.no_grad()
@pytest.mark.parametrize("bottleneck", [True, False])
def test_a_sentence_is_translated_as_the_equations_have_it(bottleneck):
    """From P, the state of the start token, alone, or, with the bottleneck off, from all states: the sum of the
    smoothed cross-entropies of the tokens, each given those before it."""
    encoder = encoder_of(recipe(bottleneck=bottleneck))
    rows = collator()(PAIRS).rows["sentences"]
    found = encoder({"sentences": rows})["translation"]
    assert found.shape == (3, 1)
    for row in range(3):
        length = int(rows["attention_mask"][row].sum())
        states = encoder.model(input_ids=rows["input_ids"][row : row + 1, :length]).last_hidden_state[0]
        tokens = [int(token) for token in rows["target_tokens"][row] if token != IGNORED]
        language = int(rows["target_language"][row])
        logits = slow_decoder(encoder, states[:1] if bottleneck else states, language, tokens[:-1])
        expected = 0.0
        for predicted, token in zip(torch.log_softmax(logits, dim=-1), tokens[1:]):
            expected -= 0.9 * float(predicted[token]) + 0.1 * float(predicted.mean())
        assert found[row].item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("bottleneck", [True, False])
def test_with_the_bottleneck_the_decoder_sees_no_state_but_the_sentence_vector(bottleneck, monkeypatch):
    encoder = encoder_of(recipe(bottleneck=bottleneck))
    rows = collator()(PAIRS).rows["sentences"]
    before = encoder({"sentences": rows})["translation"]
    states_of = TranslatingEncoder.hidden_states

    def change(place: int) -> Tensor:
        def perturbed(encoder, rows):
            states = states_of(encoder, rows).clone()
            states[:, place] += 1
            return states

        with monkeypatch.context() as patch:
            patch.setattr(TranslatingEncoder, "hidden_states", perturbed)
            return encoder({"sentences": rows})["translation"]

    assert not torch.isclose(change(0), before).any()
    assert torch.equal(change(1), before) == bottleneck
    assert not torch.isclose(change(1), before).any() or bottleneck


def test_no_translated_token_sees_itself_or_those_after_it():
    decoder = encoder_of(recipe()).decoder
    seen, language = torch.randn(1, 1, 32), torch.tensor([1])
    tokens = torch.tensor([[0, 7, 8, 9]])
    changed = torch.tensor([[0, 7, 8, 5]])
    before, after = decoder(seen, None, language, tokens), decoder(seen, None, language, changed)
    torch.testing.assert_close(after[:, :3], before[:, :3])
    assert not torch.isclose(after[:, 3], before[:, 3]).all()
    assert not torch.isclose(decoder(seen, None, 1 - language, tokens), before).any()


@pytest.mark.slow
def test_the_published_recipe_has_the_published_number_of_weights():
    """246 million (table 4.1), of which three matrices of words: read, translated, predicted. On no memory."""
    options = recipe(
        architecture=TMDE_ARCHITECTURE
        | {"num_hidden_layers": 6, "hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096}
    )
    tokenizer = unigram_tokenizer()
    tokenizer.__class__ = type("Long", (tokenizer.__class__,), {"__len__": lambda tokenizer: 50_000})
    with torch.device("meta"):
        encoder = tmde_encoder(options, tokenizer)
    trained = sum(weight.numel() for weight in encoder.parameters() if weight.requires_grad)
    assert round(trained / 1e6) == pytest.approx(246, abs=3)


def test_each_pair_is_translated_into_a_pivot_and_both_ways_by_chance_where_both_are():
    tokenizer = unigram_tokenizer()
    collate = collator()
    texts = {"de": "Die Katze lag.", "en": "The cat sat there.", "es": "Le chat dort ici."}

    def read(languages: tuple[str, str], seeds: int) -> set[tuple[str, str, str]]:
        found = set()
        for seed in range(seeds):
            first, second = (texts[language] for language in languages)
            rows = collate([pair(seed, languages, first=first, second=second)]).rows["sentences"]
            text, target = (
                next(name for name, text in texts.items() if tokenizer(text)["input_ids"] == rows[key][0].tolist())
                for key in ("input_ids", "target_tokens")
            )
            found.add((text, target, ["en", "es"][int(rows["target_language"][0])]))
        return found

    assert read(("de", "en"), 3) == {("de", "en", "en")}
    assert read(("es", "de"), 3) == {("de", "es", "es")}
    assert read(("en", "es"), 20) == {("en", "es", "es"), ("es", "en", "en")}


def test_a_translation_stands_at_the_row_of_its_sentence_where_both_sides_are_read():
    tokenizer = unigram_tokenizer()
    alone, both = collator()(PAIRS), collator(both_sides=True)(PAIRS)
    rows = both.rows["sentences"]
    translated = [index for index, language in enumerate(rows["target_language"].tolist()) if language != IGNORED]
    assert translated == [0, 1, 2 + 3]  # of the last pair, the pivot is the first sentence
    encoder = encoder_of(recipe(distance=True))
    found, expected = encoder(both.rows)["translation"], encoder(alone.rows)["translation"]
    torch.testing.assert_close(found[found != 0], expected[:, 0])
    num_tokens = sum(
        len(tokenizer(text)["input_ids"]) - 1 for text in ("The cat sat there.", "The cat sat there.", "Hund")
    )
    for batch, losses in ((alone, expected), (both, found)):
        loss = translation_loss(PairVectors({"translation": losses}, batch), Translation())
        assert loss.item() == pytest.approx(losses.sum().item() / num_tokens)


@pytest.mark.parametrize("num_negatives", [2, 40])
def test_the_distance_constraint_is_equations_4_18_to_4_21(num_negatives):
    """Both ways. Negatives are of the translation's language and of other concepts; of more than N_s some are drawn."""
    options = Distance(num_negatives=num_negatives, margin=0.3, margin_weight=0.7)
    vectors = torch.randn(2, 7, 5, generator=torch.Generator().manual_seed(0))
    vectors[1] = vectors[0] + 0.7 * vectors[1]
    concepts = torch.tensor([10, 11, 12, 13, 14, 10, 16])  # of one sentence there are two translations
    languages = torch.tensor([[1, 1, 1, 1, 1, 2, 1], [3, 3, 3, 3, 3, 3, 4]])

    def distance(one: Tensor, other: Tensor) -> float:
        return math.sqrt(sum((float(a) - float(b)) ** 2 for a, b in zip(one, other)))

    counted = [(a, b) for a in range(7) for b in range(7) if a == b or concepts[a] != concepts[b]]
    norm = sum(distance(vectors[0][a], vectors[1][b]) for a, b in counted) / len(counted) + EPSILON
    expected = 0.0
    for side in (0, 1):
        candidates = torch.tensor(
            [
                [concepts[a] != concepts[b] and languages[1 - side][a] == languages[1 - side][b] for b in range(7)]
                for a in range(7)
            ]
        )
        drawn = drawn_by_lot(candidates, concepts, concepts, num_negatives)
        for row in range(7):
            positive_distance = distance(vectors[side][row], vectors[1 - side][row]) / norm
            deltas = [
                max(0.0, 0.3 - (distance(vectors[side][row], vectors[1 - side][j]) / norm - positive_distance))
                for j in drawn[row].nonzero().flatten()
            ]
            expected += (positive_distance + 0.7 * sum(deltas) / max(1, len(deltas))) / 14
    loss = distance_of(vectors.flatten(0, 1), options, concepts, languages)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_as_many_negatives_are_drawn_as_there_are_to_be_whatever_the_order_and_company():
    concepts = torch.randint(-(2**62), 2**62, (30,), generator=torch.Generator().manual_seed(0))
    candidates = torch.rand(30, 30, generator=torch.Generator().manual_seed(1)) < 0.4
    drawn = drawn_by_lot(candidates, concepts, concepts, 8)
    assert (drawn <= candidates).all()
    assert drawn.sum(dim=1).tolist() == [min(8, count) for count in candidates.sum(dim=1).tolist()]
    order = torch.randperm(30)
    again = drawn_by_lot(candidates[:9, order], concepts[:9], concepts[order], 8)
    assert torch.equal(again, drawn[:9, order])
    everyone = drawn_by_lot(torch.ones(30, 30, dtype=torch.bool), concepts, concepts, 8)
    assert everyone.sum(dim=0).max() < 20  # rows draw different ones


def test_two_equal_vectors_have_a_gradient_that_is_a_number():
    vectors = torch.ones(4, 3, requires_grad=True)
    distance_of(vectors, Distance(), torch.arange(2), torch.tensor([[1, 1], [2, 2]])).backward()
    assert vectors.grad is not None
    assert vectors.grad.isfinite().all()
