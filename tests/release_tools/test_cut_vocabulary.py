"""A vocabulary cut to a corpus: what stays gives the same vectors, and nothing becomes unknown."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from release_tools import cut_vocabulary
from tests.tiny_encoders import CHARACTERS, WORDS, unigram_tokenizer

ENCODE = """
import sys
import numpy as np
from transformers import AutoModel, AutoTokenizer

folder, file, *texts = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
model = AutoModel.from_pretrained(folder, trust_remote_code=True)
np.save(file, np.concatenate([model.encode_documents(texts, tokenizer), model.encode_queries(texts, tokenizer)]))
"""


@pytest.fixture(scope="module")
def whole(xlmr, make_model, tmp_path_factory):
    """An HMDE with the whole vocabulary."""
    folder = tmp_path_factory.mktemp("whole") / "hmde"
    make_model(xlmr, sentence_pooling="mean").save_pretrained(folder)
    HMDETokenizer.from_sentence_encoder(str(xlmr)).save_pretrained(folder)
    (folder / "README.md").write_text("# hmde\n")
    return folder


@pytest.fixture(scope="module")
def cut(whole, corpus_folder, tmp_path_factory):
    output = tmp_path_factory.mktemp("cut") / "hmde"
    arguments = ["--model", str(whole), "--corpus", str(corpus_folder), "--output", str(output)]
    cut_vocabulary.main(arguments)
    return output


def test_texts_of_the_corpus_get_the_same_vectors_in_a_fresh_process(whole, cut, run_in_a_fresh_process, tmp_path):
    texts = ["The cat is warm. It sat there.", "Der Hund: Sie lag da!", "猫 <mask> {x}"]
    vectors = []
    for folder in (whole, cut):
        run_in_a_fresh_process(ENCODE, str(folder), str(tmp_path / "vectors.npy"), *texts, folder=tmp_path)
        vectors.append(np.load(tmp_path / "vectors.npy"))
    np.testing.assert_allclose(vectors[1], vectors[0], atol=1e-6)


def test_only_single_characters_and_what_the_corpus_uses_stay(whole, cut):
    before, after = (HMDETokenizer.from_pretrained(folder) for folder in (whole, cut))
    assert {*before.get_vocab()} - {*after.get_vocab()} >= {"▁ковре", "▁schlief"}
    assert {*after.get_vocab()} >= {"▁The", "▁Hund", *CHARACTERS, "<mask>"}
    assert sorted(after.get_vocab().values()) == [*range(len(after))]
    assert after.mask_token_id == len(after) - 1
    assert after.tokenize("ковре") == ["▁", *"ковре"]
    assert after.decode(after("The Hund")["input_ids"], skip_special_tokens=True) == "The Hund"
    model = HMDEForDocumentEmbedding.from_pretrained(cut)
    assert len(model.get_input_embeddings().weight) == len(after) == model.config.sentence_config.vocab_size
    size = f"{len(after)} of {len(before)} tokens"
    assert size in (cut / "README.md").read_text()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.one_of(st.sampled_from(WORDS), st.text(st.sampled_from([*CHARACTERS, "☃"]), max_size=5))).map(" ".join),
    st.sets(st.integers(0, len(unigram_tokenizer()) - 1)),
)
def test_no_text_loses_anything_and_one_without_cut_tokens_is_read_as_before(text, used):
    whole = unigram_tokenizer()
    kept, content = cut_vocabulary.cut(json.loads(whole.backend_tokenizer.to_str()), Counter(used), len(whole))
    tokenizer = Tokenizer.from_str(json.dumps(content))
    before, after = whole.backend_tokenizer.encode(text), tokenizer.encode(text)
    assert after.tokens.count("<unk>") == before.tokens.count("<unk>")
    assert "".join(after.tokens) == "".join(before.tokens)
    if {*before.ids} <= {*kept}:
        assert [kept[token] for token in after.ids] == before.ids


def test_what_is_frequent_in_the_corpus_and_at_large_stays():
    scores = {"<unk>": 0, "▁a": -9, "b": -9, "both": -2, "neither": -6, "at large": -1, "here": -5, "unused": -1}
    model = {"type": "Unigram", "unk_id": 0, "vocab": list(scores.items())}
    tokenizer = {"model": model, "added_tokens": [{"id": 0, "content": "<unk>"}]}
    counts = Counter({3: 5, 4: 1, 5: 1, 6: 100})
    kept, content = cut_vocabulary.cut(tokenizer, counts, num_tokens=6)
    assert kept == [0, 1, 2, 3, 5, 6]
    assert [piece for piece, _ in content["model"]["vocab"]] == ["<unk>", "▁a", "b", "both", "at large", "here"]
    assert cut_vocabulary.cut(tokenizer, counts, num_tokens=5)[0] == [0, 1, 2, 3, 6]


def test_what_cannot_be_cut_is_refused(labse, make_model, tokenizer, whole, corpus_folder, tmp_path):
    make_model(labse).save_pretrained(tmp_path / "wordpiece")
    tokenizer.save_pretrained(tmp_path / "wordpiece")
    corpus, output = ["--corpus", str(corpus_folder)], ["--output", str(tmp_path / "out")]
    with pytest.raises(ValueError, match="of the kind WordPiece; only the vocabulary of a Unigram"):
        cut_vocabulary.main(["--model", str(tmp_path / "wordpiece"), *corpus, *output])
    with pytest.raises(ValueError, match="has no articles/"):
        cut_vocabulary.main(["--model", str(whole), "--corpus", str(tmp_path), *output])
    with pytest.raises(
        ValueError, match=r"num_tokens is 3, but \d+ are single characters and special tokens, which all"
    ):
        cut_vocabulary.main(["--model", str(whole), *corpus, *output, "--num_tokens", "3"])
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match="exists; remove it, or name another folder"):
        cut_vocabulary.main(["--model", str(whole), *corpus, "--output", str(tmp_path)])


def test_texts_of_dev_and_test_concepts_are_not_counted(whole, corpus_folder):
    tokenizer = HMDETokenizer.from_pretrained(whole)
    counts = cut_vocabulary.count_tokens(tokenizer, corpus_folder)
    assert counts[tokenizer.convert_tokens_to_ids("i")] > 0  # of the concept iii, the last one for training
    assert counts[tokenizer.convert_tokens_to_ids("j")] == 0
