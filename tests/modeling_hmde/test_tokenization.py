"""The tokenizer: what a row may look like whatever the text, and that it behaves as Hugging Face's own do."""

from __future__ import annotations

import copy
import math
import pickle
import unicodedata
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer, ByT5Tokenizer, PreTrainedTokenizerFast

from modeling_hmde import HMDETokenizer, refusals_hmde, tokenization_hmde

SPECIAL_TOKENS = ["[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]", "<s>", "</s>", "<pad>", "<unk>", "<mask>"]
FULL_WIDTH = [token.translate({place: place + 0xFEE0 for place in range(0x21, 0x7F)}) for token in SPECIAL_TOKENS]
FRAGMENTS = ["<", "s>", "</", "[C", "CLS", "]", "[", "##", "▁", "<<s>s>", "[[CLS]CLS]", "<\u200bs>", "<\x00s>", "< s>"]
LINE_BREAKS = ["\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
CONTROLS = ["\x00", "\x07", "\x1b", "\x7f", "\u200b", "\u200e", "\ufeff", "\ufffd", "\ud83d", "\udc00"]
ANY_TEXT = st.lists(
    st.sampled_from([*SPECIAL_TOKENS, *FULL_WIDTH, *FRAGMENTS, *LINE_BREAKS, *CONTROLS, "the cat", ". ", "猫。", " "])
    | st.text(max_size=4),
    max_size=20,
).map("".join)
PROSE = st.lists(
    st.sampled_from(["the ", "cat ", "sat. ", "Die ", "кот", "! ", "猫", "。", "12", "\n", " ", "\t"])
).map("".join)


def sentences_of(row: list[int], tokenizer: HMDETokenizer) -> list[list[int]]:
    """A row cut before each start token."""
    sentences: list[list[int]] = []
    for token in row:
        if token == tokenizer.start_token_id or not sentences:
            sentences.append([])
        sentences[-1].append(token)
    return sentences


# --- what a row looks like, whatever the text ------------------------------------------------------------------------


@given(ANY_TEXT)
@example("")
@example("\x00")
def test_every_sentence_of_a_row_is_framed_and_within_the_limits(narrow: HMDETokenizer, text: str) -> None:
    row = narrow(text)["input_ids"]
    sentences = sentences_of(row, narrow)
    assert 1 <= len(sentences) <= 4
    for sentence in sentences:
        assert sentence[0] == narrow.start_token_id
        assert sentence[-1] == narrow.sep_token_id
        assert len(sentence) <= 6


@given(ANY_TEXT, st.booleans())
@example("<s>[CLS]＜s＞［CLS］</s>[SEP]", False)
def test_text_never_becomes_a_special_token(wide: HMDETokenizer, text: str, as_queries: bool) -> None:
    harmless = {wide.unk_token_id}
    for sentence in sentences_of(wide(text, as_queries=as_queries)["input_ids"], wide):
        assert set(sentence[1:-1]) & set(wide.all_special_ids) <= harmless


def test_the_guarded_vocabulary_holds_its_start_token_as_an_ordinary_piece(xlmr: Path) -> None:
    """Without which the test above would say little."""
    plain = AutoTokenizer.from_pretrained(xlmr)
    assert (
        plain("＜s＞", add_special_tokens=False, split_special_tokens=True)["input_ids"].count(plain.cls_token_id) == 1
    )


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda tokenizer: pickle.loads(pickle.dumps(tokenizer))])
def test_text_stays_text_in_a_copy_in_another_process(wide: HMDETokenizer, copied: Callable) -> None:
    text = "the [CLS] cat <s>"
    assert copied(wide)(text)["input_ids"] == wide(text)["input_ids"]


@given(st.lists(PROSE, min_size=1, max_size=3).map("\n".join))
def test_a_row_is_the_sentence_encoders_own_rows_of_the_sentences_end_to_end(
    wide: HMDETokenizer, base: PreTrainedTokenizerFast, text: str
) -> None:
    spans = list(tokenization_hmde.sentence_spans(text, "en"))
    expected = [base(text[begin:end])["input_ids"] for begin, end in spans] or [base("")["input_ids"]]
    assert wide(text, language="en")["input_ids"] == list(chain(*expected))


@given(ANY_TEXT)
def test_offsets_run_through_the_text_and_special_tokens_have_none(narrow: HMDETokenizer, text: str) -> None:
    encoded = narrow(text, return_offsets_mapping=True)
    lengths = {len(values) for values in encoded.values()}
    assert lengths == {len(encoded["input_ids"])}
    begins = []
    for token, (begin, end) in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
        if token in (narrow.start_token_id, narrow.sep_token_id):
            assert (begin, end) == (0, 0)
        else:
            assert 0 <= begin <= end <= len(text)
            begins.append(begin)
    assert begins == sorted(begins)


@pytest.fixture(scope="module")
def xlmr_tokenizer(xlmr: Path) -> HMDETokenizer:
    return HMDETokenizer.from_sentence_encoder(str(xlmr), max_sentences=1000)


@pytest.fixture(scope="module")
def labse_tokenizer(labse: Path) -> HMDETokenizer:
    return HMDETokenizer.from_sentence_encoder(str(labse), max_sentences=1000)


@given(st.lists(PROSE | st.sampled_from(CONTROLS) | st.text(max_size=4)).map("".join))
@example("ﬁn ｃａｔ e\u0301 \x00the\u2029½ cat")
@example("<s>The cat</s> [CLS] is＜ｓ＞ [MASK]")
def test_offsets_point_at_the_text_the_tokens_came_from(
    xlmr_tokenizer: HMDETokenizer, labse_tokenizer: HMDETokenizer, text: str
) -> None:
    for tokenizer in (xlmr_tokenizer, labse_tokenizer):
        encoded = tokenizer(text, return_offsets_mapping=True)
        for token, (begin, end) in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
            if token not in tokenizer.all_special_ids:
                piece = tokenizer.convert_ids_to_tokens(token).removeprefix("##").replace("▁", "")
                assert piece in unicodedata.normalize("NFKC", text[begin:end])


@given(PROSE)
def test_tokens_cover_all_that_is_not_white_space_when_nothing_is_cut(wide: HMDETokenizer, text: str) -> None:
    covered = {place for span in wide(text, return_offsets_mapping=True)["offset_mapping"] for place in range(*span)}
    assert {place for place, character in enumerate(text) if not character.isspace()} <= covered


@given(ANY_TEXT, st.integers(3, 30))
def test_truncation_ends_a_row_within_the_limit_with_a_whole_sentence(
    narrow: HMDETokenizer, text: str, limit: int
) -> None:
    whole = sentences_of(narrow(text)["input_ids"], narrow)
    cut = sentences_of(narrow(text, truncation=True, max_length=limit)["input_ids"], narrow)
    assert sum(map(len, cut)) <= limit
    assert cut[:-1] == whole[: len(cut) - 1]
    last = whole[len(cut) - 1]
    if cut[-1] != last:
        assert 3 <= len(cut[-1]) < len(last), "a cut sentence keeps some of its text"
        assert cut[-1] == [*last[: len(cut[-1]) - 1], narrow.sep_token_id]
    if cut != whole:  # what is left of the limit has no room for another token of text
        assert limit - sum(map(len, cut)) < 3


# --- options ---------------------------------------------------------------------------------------------------------


def test_sentences_beyond_the_limit_are_left_out_with_a_warning(
    make_tokenizer: Callable[..., HMDETokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(refusals_hmde.logger, "warning_once", warnings.append)
    tokenizer = make_tokenizer(max_sentences=2)
    kept = tokenizer("The cat sat. The dog sat.")["input_ids"]
    assert warnings == []
    assert tokenizer("The cat sat. The dog sat. It was warm.")["input_ids"] == kept
    assert "more than 2 sentences" in warnings[0]


def test_what_every_limit_cuts_is_warned_of_and_counted_on_request(
    make_tokenizer: Callable[..., HMDETokenizer], base: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(refusals_hmde.logger, "warning_once", warnings.append)
    sentences = ["The cat sat.", "It was warm there!", "Did the dog see it?", "The cat sat on the mat."]
    num_tokens = [len(base(sentence, add_special_tokens=False)["input_ids"]) for sentence in sentences]
    text = " ".join(sentences)

    def lost(tokenizer: HMDETokenizer, texts: str | list[str], **options: Any) -> tuple[Any, Any]:
        found = tokenizer(texts, return_truncated=True, **options)
        assert tokenizer(texts, **options)["input_ids"] == found["input_ids"]
        return found["num_truncated_sentences"], found["num_truncated_tokens"]

    assert lost(make_tokenizer(sentence_prompt="der "), [text, "", "The cat"]) == ([0, 0, 0], [0, 0, 0])
    assert warnings == []
    assert lost(make_tokenizer(max_sentences=2), text) == (2, sum(num_tokens[2:]))
    assert "more than 2 sentences" in warnings.pop()
    warnings.clear()
    # By bytes, the space behind a prompt is a token.
    with_prompt, without = (base(read, add_special_tokens=False)["input_ids"] for read in ("der The", "The"))
    room = 2 + len(with_prompt) - len(without)
    cutting = make_tokenizer(max_sentence_length=room + 2, long_sentences="cut", sentence_prompt="der ")
    assert lost(cutting, [text]) == ([0], [sum(count - 2 for count in num_tokens)])
    assert f"more than {room + 2} tokens" in warnings.pop()
    warnings.clear()
    assert lost(make_tokenizer(max_sentence_length=5), sentences[1], as_queries=True) == (0, num_tokens[1] - 3)
    assert "more than 5 tokens" in warnings.pop()
    warnings.clear()
    whole = make_tokenizer()
    kept = num_tokens[0] + 2
    assert lost(whole, text, truncation=True, max_length=kept) == (3, sum(num_tokens[1:]))
    assert f"max_length={kept}" in warnings.pop()
    assert lost(whole, text, truncation=True, max_length=kept + 3) == (2, sum(num_tokens[1:]) - 1)
    prompted = make_tokenizer(sentence_prompt="der ")
    first = len(prompted(sentences[0])["input_ids"])
    room = first + 2 + len(prompted.backend_tokenizer.encode("der", add_special_tokens=False).ids)  # all but for text
    assert lost(prompted, " ".join(sentences[:2]), truncation=True, max_length=room) == (0, num_tokens[1])


def test_the_counts_of_what_was_cut_become_tensors_that_the_model_takes(
    make_tokenizer: Callable[..., HMDETokenizer],
) -> None:
    texts = ["The cat sat. It was warm. It was.", "The cat."]
    batch = make_tokenizer(max_sentences=1)(texts, return_truncated=True, padding=True, return_tensors="pt")
    assert batch["num_truncated_sentences"].tolist() == [2, 0]


def test_a_text_cannot_lose_its_beginning(make_tokenizer: Callable[..., HMDETokenizer], tmp_path: Path) -> None:
    make_tokenizer().save_pretrained(tmp_path)
    for make in (
        partial(make_tokenizer, truncation_side="left"),
        partial(AutoTokenizer.from_pretrained, tmp_path, truncation_side="left"),
        partial(setattr, make_tokenizer(), "truncation_side", "left"),
    ):
        with pytest.raises(ValueError, match="truncation_side is 'left', but HMDE reads documents from their beg"):
            make()
    assert make_tokenizer(truncation_side="right").truncation_side == "right"


def test_texts_are_read_in_steps_as_if_at_once(
    make_tokenizer: Callable[..., HMDETokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = make_tokenizer(max_sentence_length=8, max_sentences=20)
    texts = ["the cat sat on the mat " * 40, "", "The cat sat. " * 30, "кот спит " * 30, "Yes. No."]
    expected = tokenizer(texts, return_truncated=True, return_offsets_mapping=True)
    monkeypatch.setattr(tokenization_hmde, "MAX_CHARACTERS_AT_ONCE", 30)
    assert tokenizer(texts, return_truncated=True, return_offsets_mapping=True).data == expected.data
    assert tokenizer(texts)["input_ids"] == expected["input_ids"]


def test_a_short_sentence_is_read_as_one_with_the_next(
    make_tokenizer: Callable[..., HMDETokenizer], base: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    make_tokenizer(min_sentence_bytes=12).save_pretrained(tmp_path)
    tokenizer = HMDETokenizer.from_pretrained(tmp_path)
    rows = tokenizer(["The cat.\nIt sat on the mat. Yes.", "The dog."], max_length=None)["input_ids"]
    assert rows == [base("The cat.\nIt sat on the mat. Yes.")["input_ids"], base("The dog.")["input_ids"]]
    assert tokenizer("Yes. No.", as_queries=True)["input_ids"] == base("Yes. No.")["input_ids"]


def test_a_long_sentence_is_split_or_cut(make_tokenizer: Callable[..., HMDETokenizer]) -> None:
    text = "the cat sat on the mat"
    whole = make_tokenizer()(text)["input_ids"]
    start, tokens, end = whole[:1], whole[1:-1], whole[-1:]
    assert len(tokens) > 4
    split = [start + tokens[first : first + 4] + end for first in range(0, len(tokens), 4)]
    tokenizer = make_tokenizer(max_sentence_length=6)
    assert sentences_of(tokenizer(text)["input_ids"], tokenizer) == split
    assert make_tokenizer(max_sentence_length=6, long_sentences="cut")(text)["input_ids"] == split[0]


def test_chunks_have_a_fixed_number_of_tokens_whatever_the_sentences(
    make_tokenizer: Callable[..., HMDETokenizer], base: PreTrainedTokenizerFast
) -> None:
    text = "The cat sat on the mat. It was warm there!\nDid the dog see it?"
    tokenizer = make_tokenizer(segmentation="chunks", max_sentence_length=7)
    start, *tokens, end = base(text)["input_ids"]
    expected = [[start, *tokens[first : first + 5], end] for first in range(0, len(tokens), 5)]
    assert sentences_of(tokenizer(text)["input_ids"], tokenizer) == expected
    assert len(expected) > 3
    tokenizer = make_tokenizer(segmentation="chunks", max_sentence_length=7, max_sentences=60)
    assert len(tokenizer("the cat sat on the mat " * 60)["input_ids"]) == 60 * 7, "all that are kept are read"


def test_a_window_begins_with_the_last_third_of_the_one_before(
    make_tokenizer: Callable[..., HMDETokenizer], base: PreTrainedTokenizerFast
) -> None:
    text = "The cat sat on the mat. It was warm there!\nDid the dog see it?"
    tokenizer = make_tokenizer(segmentation="windows", max_sentence_length=8, max_sentences=2)
    start, *tokens, end = base(text)["input_ids"]
    found = tokenizer(text, return_truncated=True)
    assert sentences_of(found["input_ids"], tokenizer) == [[start, *tokens[:6], end], [start, *tokens[4:10], end]]
    assert found["num_truncated_tokens"] == len(tokens) - 10


def test_the_language_picks_the_rules_of_the_splitter(wide: HMDETokenizer) -> None:
    text = "Er kam am 3. Oktober. Ja."

    def num_sentences(row: list[int]) -> int:
        return row.count(wide.start_token_id)

    german, french = (num_sentences(wide(text, language=code)["input_ids"]) for code in ("de", "fr"))
    assert german == 2
    assert french > 2
    assert [num_sentences(row) for row in wide([text] * 3, language="de")["input_ids"]] == [german] * 3
    mixed = wide([text] * 4, language=["de", "fr", None, "no such language"])["input_ids"]
    assert [num_sentences(row) for row in mixed[:2]] == [german, french]
    assert mixed[2] == wide(text)["input_ids"]
    assert all(row[0] == wide.start_token_id for row in mixed)


@pytest.mark.parametrize("shape", ["labse", "xlmr"])
def test_prompts_stand_before_every_sentence_and_every_query(shape: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(shape)
    plain = AutoTokenizer.from_pretrained(folder)
    tokenizer = HMDETokenizer.from_sentence_encoder(
        str(folder), sentence_prompt="the dog: ", query_prompt="die Katze: "
    )
    sentences = sentences_of(tokenizer("The cat sat. Es war.")["input_ids"], tokenizer)
    assert sentences == [plain(f"the dog: {text}")["input_ids"] for text in ("The cat sat.", "Es war.")]
    assert tokenizer("The cat sat.", as_queries=True)["input_ids"] == plain("die Katze: The cat sat.")["input_ids"]
    assert tokenizer("")["input_ids"] == plain("the dog:")["input_ids"]


def test_every_part_of_a_long_sentence_has_its_prompt(make_tokenizer: Callable[..., HMDETokenizer]) -> None:
    tokenizer = make_tokenizer(sentence_prompt="q", max_sentence_length=12)
    sentences = sentences_of(tokenizer("the cat sat on the mat and on the mat it sat")["input_ids"], tokenizer)
    prompt = tokenizer("")["input_ids"][:-1]
    assert len(sentences) > 1
    assert all(sentence[: len(prompt)] == prompt and len(sentence) <= 12 for sentence in sentences)


def test_a_prompt_that_leaves_no_room_is_refused(make_tokenizer: Callable[..., HMDETokenizer]) -> None:
    tokenizer = make_tokenizer(sentence_prompt="the cat sat on the mat and purred", max_sentence_length=6)
    with pytest.raises(ValueError, match="max_sentence_length is 6, which leaves no room"):
        tokenizer("the dog")
    assert tokenizer("the dog", as_queries=True)["input_ids"]


def test_a_query_is_one_sentence(wide: HMDETokenizer, base: PreTrainedTokenizerFast) -> None:
    query = "The cat sat. Where?\nHere!"
    assert wide(query, as_queries=True)["input_ids"] == base(query)["input_ids"]
    assert len(wide("cat " * 1000, as_queries=True)["input_ids"]) == 128


def test_decode_gives_the_text_back(wide: HMDETokenizer) -> None:
    rows = wide(["the cat. der hund!", "кот спит"])["input_ids"]
    assert wide.decode(rows[0]).count(wide.cls_token) == 2
    decoded = wide.batch_decode(rows, skip_special_tokens=True)
    assert ["".join(text.split()) for text in decoded] == ["thecat.derhund!", "котспит"]


@pytest.mark.parametrize("trust_remote_code", [False, True])
def test_save_and_load_keeps_every_option(
    make_tokenizer: Callable[..., HMDETokenizer], documents: list[str], tmp_path: Path, trust_remote_code: bool
) -> None:
    options: dict[str, Any] = {
        "max_sentences": 3,
        "max_sentence_length": 20,
        "segmentation": "chunks",
        "long_sentences": "cut",
        "sentence_prompt": "der: ",
        "query_prompt": "die: ",
    }
    tokenizer = make_tokenizer(**options)
    tokenizer.save_pretrained(tmp_path / "first")
    loaded = AutoTokenizer.from_pretrained(tmp_path / "first", trust_remote_code=trust_remote_code)
    loaded.save_pretrained(tmp_path / "second")
    again = AutoTokenizer.from_pretrained(tmp_path / "second", trust_remote_code=trust_remote_code)
    for same in (loaded, again):
        assert type(same).__name__ == "HMDETokenizer"
        assert {option: getattr(same, option) for option in options} == options
        assert same.model_max_length == 60
        for text in [*documents, "<s>[CLS]＜s＞"]:
            assert same(text)["input_ids"] == tokenizer(text)["input_ids"]
            assert same(text, as_queries=True)["input_ids"] == tokenizer(text, as_queries=True)["input_ids"]
        assert same.special_tokens_map == tokenizer.special_tokens_map


# --- as with any tokenizer of Hugging Face ---------------------------------------------------------------------------


def test_a_batch_is_its_texts_one_by_one(wide: HMDETokenizer, documents: list[str]) -> None:
    batch = wide(documents)
    assert batch["input_ids"] == [wide(text)["input_ids"] for text in documents] == [*map(wide.encode, documents)]
    assert batch["attention_mask"] == [[1] * len(row) for row in batch["input_ids"]]
    assert set(batch) == set(wide.model_input_names) == {"input_ids", "attention_mask", "sentence_ids"}


@pytest.mark.parametrize("options", [{}, {"return_tensors": "pt"}, {"return_tensors": "np"}], ids=str)
@pytest.mark.parametrize(
    "padding", [{"padding": "longest"}, {"padding": "max_length"}, {"pad_to_multiple_of": 8}], ids=str
)
@pytest.mark.parametrize("padding_side", ["right", "left"])
def test_one_short_sentence_is_padded_as_the_sentence_encoders_tokenizer_pads_it(
    wide: HMDETokenizer, base: PreTrainedTokenizerFast, options: dict, padding: dict, padding_side: str
) -> None:
    arguments: dict[str, Any] = {
        "padding": True,
        "max_length": 24 if padding.get("padding") == "max_length" else None,
        "padding_side": padding_side,
        "return_offsets_mapping": True,
        "return_token_type_ids": False,
        **padding,
        **options,
    }
    texts = ["the cat", "der hund sah", ""]
    expected, actual = base(texts, **arguments), wide(texts, **arguments)
    sentences = actual.pop("sentence_ids")  # 0 for all tokens of the only one, -1 for padding
    assert torch.equal(torch.as_tensor(sentences), torch.as_tensor(actual["attention_mask"]) - 1)
    assert set(actual) == set(expected)
    for key, values in expected.items():
        assert type(actual[key]) is type(values)
        assert torch.equal(torch.as_tensor(actual[key]), torch.as_tensor(values)), key


def test_one_text_gives_one_row_and_as_a_tensor_a_batch_of_one(wide: HMDETokenizer) -> None:
    row = wide("the cat")["input_ids"]
    assert isinstance(row[0], int)
    assert wide("the cat", return_tensors="pt")["input_ids"].tolist() == [row]
    assert wide(["the cat"])["input_ids"] == [row]


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [("max_sentence", "max_sentences"), ("segmentaton", "segmentation"), ("query_promt", "query_prompt")],
)
def test_an_option_that_is_misspelt_is_refused_where_a_tokenizer_is_made_or_loaded(
    make_tokenizer: Callable[..., HMDETokenizer], tmp_path: Path, misspelt: str, meant: str
) -> None:
    make_tokenizer().save_pretrained(tmp_path)
    for make in (make_tokenizer, partial(AutoTokenizer.from_pretrained, tmp_path)):
        with pytest.raises(ValueError, match=f"no option {misspelt}; did you mean {meant}?"):
            make(**{misspelt: "sentences"})


def test_a_model_max_length_of_ones_own_is_kept_until_the_limits_change(
    make_tokenizer: Callable[..., HMDETokenizer], tmp_path: Path
) -> None:
    limits = {"max_sentences": 3, "max_sentence_length": 5}
    tokenizer = make_tokenizer(**limits, model_max_length=16)
    assert tokenizer.model_max_length == 15
    assert len(tokenizer("cat " * 100, truncation=True)["input_ids"]) == 15
    assert len(tokenizer("cat", padding="max_length")["input_ids"]) == 15
    tokenizer = make_tokenizer(**limits, model_max_length=8)
    assert len(tokenizer("cat " * 100, truncation=True)["input_ids"]) == 8
    tokenizer.save_pretrained(tmp_path / "eight")
    assert AutoTokenizer.from_pretrained(tmp_path / "eight").model_max_length == 8
    assert AutoTokenizer.from_pretrained(tmp_path / "eight", model_max_length=6).model_max_length == 6
    assert AutoTokenizer.from_pretrained(tmp_path / "eight", max_sentences=9).model_max_length == 45

    tokenizer.model_max_length = 9  # as sentence-transformers sets it
    tokenizer.save_pretrained(tmp_path / "nine")
    assert AutoTokenizer.from_pretrained(tmp_path / "nine").model_max_length == 9


def test_model_max_length_follows_limits_that_are_changed_later(
    make_tokenizer: Callable[..., HMDETokenizer], tmp_path: Path
) -> None:
    tokenizer = make_tokenizer(max_sentences=3, max_sentence_length=5)
    for name in ("first", "second"):  # the second was loaded
        tokenizer.max_sentences += 1
        assert tokenizer.model_max_length == tokenizer.max_sentences * 5
        tokenizer.save_pretrained(tmp_path / name)
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / name)
        assert tokenizer.model_max_length == tokenizer.max_sentences * 5
        assert copy.deepcopy(tokenizer).model_max_length == tokenizer.model_max_length
        assert pickle.loads(pickle.dumps(tokenizer)).model_max_length == tokenizer.model_max_length


def test_pad_fills_rows_made_one_by_one(wide: HMDETokenizer, documents: list[str]) -> None:
    padded = wide.pad([wide(text) for text in documents], return_tensors="pt")
    at_once = wide(documents, padding=True, return_tensors="pt")
    assert all(torch.equal(padded[key], at_once[key]) for key in at_once)


# --- tokens of a text, as text splitters and others read them ---------------------------------------------------------


@given(st.lists(PROSE, max_size=3).map(" ".join))
def test_tokens_without_special_ones_are_the_sentence_encoders_of_the_whole_text(
    narrow: HMDETokenizer, base: PreTrainedTokenizerFast, text: str
) -> None:
    ids = base(text, add_special_tokens=False)["input_ids"]
    assert narrow(text, add_special_tokens=False)["input_ids"] == narrow.encode(text, add_special_tokens=False) == ids
    assert narrow.tokenize(text) == base.tokenize(text)
    for truncation in (False, "do_not_truncate"):  # as text splitters ask
        assert narrow.encode(text, truncation=truncation, max_length=2**32 - 1) == base.encode(text)
    assert narrow.decode(narrow.encode(text, add_special_tokens=False)) == base.decode(ids)


def test_a_call_without_special_tokens_takes_what_every_call_takes(
    wide: HMDETokenizer, base: PreTrainedTokenizerFast, documents: list[str]
) -> None:
    options: dict[str, Any] = {
        "add_special_tokens": False,
        "padding": True,
        "truncation": True,
        "max_length": 5,
        "return_offsets_mapping": True,
        "return_tensors": "pt",
    }
    rows = wide(documents)["input_ids"]
    actual, expected = wide(documents, **options), base(documents, return_token_type_ids=False, **options)
    assert set(actual) == set(expected)
    assert all(torch.equal(actual[key], expected[key]) for key in expected)
    assert wide(documents)["input_ids"] == rows, "the limit of one call is not that of the next"


def test_text_never_becomes_a_special_token_without_special_tokens_either(wide: HMDETokenizer) -> None:
    for text in SPECIAL_TOKENS:
        assert not {*wide.encode(text, add_special_tokens=False)} & {*wide.all_special_ids} - {wide.unk_token_id}


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "language", "error", "named"),
    [
        (7, None, TypeError, "text 0 is int, not str"),
        (b"a", None, TypeError, "text 0 is bytes, not str"),
        (["a", None], None, TypeError, "text 1 is NoneType, not str"),
        ([["a"]], None, TypeError, "text 0 is list, not str"),
        ([], None, ValueError, "the list is empty"),
        (["a", "b"], ["de"], ValueError, "2 texts came with 1 languages"),
        # A table's empty cell is NaN in pandas.
        (["a", "b"], ["de", math.nan], TypeError, "language 1 is nan; give a code such as 'de', or None"),
        (["a", "b"], math.nan, TypeError, "language 0 is nan"),
    ],
    ids=str,
)
def test_what_is_no_text_or_language_is_refused_by_its_place(
    wide: HMDETokenizer, text: object, language: object, error: type, named: str
) -> None:
    with pytest.raises(error, match=named):
        wide(text, language=language)


def test_a_chat_is_tokenized_by_its_template(wide: HMDETokenizer) -> None:
    """transformers passes options of its own to the tokenizer."""
    chat = [{"role": "user", "content": "the cat"}]
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    ids = wide.apply_chat_template(chat, chat_template=template, return_dict=False)
    assert ids == wide.encode("the cat", add_special_tokens=False)


@pytest.mark.parametrize("text", ["", " ", "\n \t\u3000", "\u2029"], ids=ascii)
@pytest.mark.parametrize("as_queries", [False, True])
@pytest.mark.parametrize("segmentation", ["sentences", "chunks", "windows"])
def test_a_text_without_content_is_one_empty_sentence(
    make_tokenizer: Callable[..., HMDETokenizer], text: str, as_queries: bool, segmentation: str
) -> None:
    tokenizer = make_tokenizer(segmentation=segmentation)
    empty = [tokenizer.start_token_id, tokenizer.sep_token_id]
    assert tokenizer(text, as_queries=as_queries)["input_ids"] == empty


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"text_pair": "b"}, "one document at a time"),
        ({"split_special_tokens": False}, "split_special_tokens=False is not supported; text never becomes"),
        ({"return_token_type_ids": True}, "return_token_type_ids=True is not supported"),
        ({"stride": 3}, "stride=3 is not supported"),
        ({"return_length": True}, "return_length=True is not supported; take the length of each row"),
        ({"colour": "red"}, "the tokenizer has no option colour; help"),
        ({"is_split_into_words": True}, "is_split_into_words=True is not supported"),
        ({"return_overflowing_tokens": True}, "return_overflowing_tokens=True is not supported"),
        ({"truncation": True, "max_length": 2}, "max_length is 2, but a sentence takes 2 special tokens"),
    ],
    ids=str,
)
def test_what_a_document_cannot_be_given_is_refused(wide: HMDETokenizer, arguments: dict, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        wide("a", **arguments)


@pytest.mark.parametrize(
    ("option", "value"),
    [("segmentation", "words"), ("long_sentences", "drop"), ("max_sentences", 0), ("max_sentence_length", 2)],
)
def test_an_impossible_option_is_refused_by_its_name(
    make_tokenizer: Callable[..., HMDETokenizer], option: str, value: object
) -> None:
    with pytest.raises(ValueError, match=f"{option} is {value!r}"):
        make_tokenizer(**{option: value})


def save_plain_tokenizer(folder: Path, template: str, **special_tokens: str) -> str:
    """A tokenizer of words with the special tokens [S], [E], [P] put around a text as `template` says."""
    backend = Tokenizer(models.WordLevel({"[P]": 0, "[S]": 1, "[E]": 2, "[U]": 3, "a": 4}, unk_token="[U]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(single=template, special_tokens=[("[S]", 1), ("[E]", 2)])
    PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[U]", **special_tokens).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("padding_side", ["right", "left"])
@pytest.mark.parametrize(
    ("template", "before", "after", "start"),
    [
        pytest.param("$A", [], [], None, id="none"),
        pytest.param("$A [E]", [], [2], None, id="end"),
        pytest.param("[S] $A", [1], [], 1, id="start"),
        pytest.param("[S] $A [S]", [1], [1], None, id="the same at both ends"),
        pytest.param("[S] $A [E] [E]", [1], [2, 2], 1, id="two at the end"),
    ],
)
def test_sentences_are_told_apart_whatever_special_tokens_an_encoder_has(
    template: str, before: list[int], after: list[int], start: int | None, padding_side: str, tmp_path: Path
) -> None:
    folder = save_plain_tokenizer(tmp_path, template, pad_token="[P]", eos_token="[E]")
    tokenizer = HMDETokenizer.from_sentence_encoder(folder, padding_side=padding_side)
    assert (tokenizer.start_token_id, tokenizer.num_special_tokens) == (start, (len(before), len(after)))
    encoded = tokenizer(["a a\na", "a", ""], padding=True, padding_side=padding_side)
    sentences = [[[4, 4], [4]], [[4]], [[]]]
    for row, document in enumerate(sentences):
        real = [place for place, mask in enumerate(encoded["attention_mask"][row]) if mask]
        ids, places = ([encoded[name][row][index] for index in real] for name in ("input_ids", "sentence_ids"))
        framed = [[*before, *text, *after] or [2] for text in document]  # an empty text is an end token at least
        assert ids == [*chain(*framed)]
        assert places == [index for index, tokens in enumerate(framed) for _ in tokens]
        longest = len(encoded["sentence_ids"][row])
        assert real == [*range(longest)][slice(-len(real), None) if padding_side == "left" else slice(len(real))]
        assert {encoded["sentence_ids"][row][place] for place in {*range(longest)} - {*real}} <= {-1}
    cut = tokenizer("a a\na a a a", truncation=True, max_length=2 * len([*before, *after]) + 4)
    assert cut["input_ids"] == [*before, 4, 4, *after, *before, 4, 4, *after]


def test_an_encoder_without_a_padding_token_is_refused(tmp_path: Path) -> None:
    folder = save_plain_tokenizer(tmp_path, "[S] $A [E]", cls_token="[S]", sep_token="[E]")
    with pytest.raises(ValueError, match="has no padding token"):
        HMDETokenizer.from_sentence_encoder(folder)


def test_a_limit_of_the_encoders_tokenizer_does_not_limit_documents(labse: Path, tmp_path: Path) -> None:
    base = AutoTokenizer.from_pretrained(labse)
    base.backend_tokenizer.enable_truncation(4)
    base.backend_tokenizer.enable_padding(length=64)
    base.save_pretrained(tmp_path)
    text = "The cat sat on the mat, and it was warm there for the dog."
    expected = HMDETokenizer.from_sentence_encoder(str(labse))(text)["input_ids"]
    assert HMDETokenizer.from_sentence_encoder(str(tmp_path))(text)["input_ids"] == expected


def test_a_tokenizer_written_in_python_is_refused(tmp_path: Path) -> None:
    ByT5Tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="is a ByT5Tokenizer, not backed by the tokenizers library"):
        HMDETokenizer.from_sentence_encoder(str(tmp_path))
