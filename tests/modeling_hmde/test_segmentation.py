"""Sentence spans: where they may stand, whatever the text."""

from __future__ import annotations

import importlib
import re
import sys
import unicodedata
from itertools import islice

import pytest
import sentencex
from hypothesis import given
from hypothesis import strategies as st

from modeling_hmde import segmentation_hmde
from modeling_hmde.marks_hmde import IGNORED_MARKS
from modeling_hmde.segmentation_hmde import join_short_spans, replace_surrogates, sentence_spans

LINE_BREAKS = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
PROSE = st.lists(
    st.sampled_from(
        ["Dr. ", "He said. ", "No! ", "3.14", "。", "！", "नमस्ते।", "etc.", " ", "\t", "\u3000", *LINE_BREAKS]
    )
    | st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=5)
).map("".join)
LANGUAGES = st.sampled_from([None, "en", "de", "zh", "ja", "th", "hi", "ar", "pt-BR", "zh_Hant", "xx", "", "nonsense"])


def sentences(text: str, language: str | None = None) -> list[str]:
    return [text[begin:end] for begin, end in sentence_spans(text, language)]


@given(PROSE, LANGUAGES)
def test_sentences_cover_all_that_can_be_seen_in_order_and_once(text: str, language: str | None) -> None:
    spans = list(sentence_spans(text, language))
    between = [0, *(place for span in spans for place in span), len(text)]
    assert between == sorted(between)
    gaps = [text[begin:end] for begin, end in zip(between[::2], between[1::2], strict=True)]
    seen = [character for character in "".join(gaps) if not character.isspace()]
    assert all(unicodedata.category(character) in ("Cc", "Cf") for character in seen)


@given(PROSE, LANGUAGES)
def test_no_sentence_is_empty_or_begins_or_ends_with_white_space(text: str, language: str | None) -> None:
    for sentence in sentences(text, language):
        assert sentence
        assert sentence == sentence.strip()


@pytest.mark.parametrize("space", "\u00a0\u1680\u2009\u202f\u3000")
def test_a_wide_space_between_a_capital_letter_and_a_full_stop_is_a_space(space: str) -> None:
    text = f"Take vitamin C{space}. It is in oranges."
    assert [text[begin:end] for begin, end in sentence_spans(text, "en")] == [
        text.replace(space, " ")[begin:end].replace(" .", f"{space}.")
        for begin, end in sentence_spans(text.replace(space, " "), "en")
    ]


def test_a_line_of_zero_width_characters_is_no_sentence() -> None:
    assert sentences("\u200b\ufeff\n\u200d \u200b\nOne.\n\u2060\nTwo\u200b words.") == ["One.", "Two\u200b words."]


@pytest.mark.parametrize("line_break", LINE_BREAKS, ids=ascii)
def test_every_line_break_of_unicode_ends_a_sentence(line_break: str) -> None:
    assert sentences(f"one heading{line_break}and the text below it") == ["one heading", "and the text below it"]


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "Dr. Smith came. He left.", ["Dr. Smith came.", "He left."]),
        ("de", "Das ist z. B. so. Ja.", ["Das ist z. B. so.", "Ja."]),
        ("zh", "猫在睡觉。狗看着它！", ["猫在睡觉。", "狗看着它！"]),
        ("zh", "它很大。2004年来了。", ["它很大。", "2004年来了。"]),
        ("ja", "猫が寝ている。犬が見ている。", ["猫が寝ている。", "犬が見ている。"]),
        ("hi", "बिल्ली सो रही है। कुत्ता देखता है।", ["बिल्ली सो रही है।", "कुत्ता देखता है।"]),
        (None, "One. 二。Three.", ["One.", "二。", "Three."]),
    ],
)
def test_sentences_end_where_the_language_ends_them(language: str | None, text: str, expected: list[str]) -> None:
    assert sentences(text, language) == expected


# Before a capital or a number, as they stand in texts. The languages are as in abbreviations_hmde.py.
ABBREVIATIONS = {
    "en": "Dr. Smith, Fig. 4, No. 10 Street, J. R. R. Tolkien, e.g. Berlin, Sept. 11, approx. 50, Gov. Brown",
    "de": "z. B. Berlin, z.B. Berlin, bzw. Berlin, Nr. 5, Abb. 4, 3. Oktober, ggf. Montag, Dipl.-Ing. Weber",
    "fr": "M. Dupont, Mme. Dupont, J.-J. Rousseau, p. ex. Paris, av. J.-C. Rome, éd. Gallimard, chap. 4, tél. 0123",
    "es": "Sr. García, Dña. Ana, EE.UU. Washington, p. ej. Madrid, pág. 12, Avda. Libertad, Cía. Nacional",
    "it": "Sig. Rossi, Dott.ssa Rossi, p.es. Roma, ecc. Roma, pagg. 12, d.C. Roma, S. Pietro, artt. 5",
    "pt": "Sr. Silva, Exmo. Senhor, p. ex. Lisboa, pág. 12, Ltda. Brasil, séc. XX, D. Pedro, Profa. Silva",
    "nl": "dhr. Jansen, bijv. Amsterdam, o.a. Amsterdam, blz. 12, burg. Jansen, v.Chr. Rome, hfst. 4",
    "sv": "t.ex. Stockholm, bl. a. Stockholm, osv. Stockholm, jfr. Strindberg, f.Kr. Rom, milj. Kronor",
    "da": "f.eks. Odense, dvs. Odense, hhv. Odense, H. C. Andersen, pga. Corona, mio. Kroner",
    "nb": "f.eks. Oslo, dvs. Oslo, tlf. 0123, mrd. Kroner, ang. Hansen, St. Olav",
    "fi": "esim. Turku, ks. Kuva, mm. Turku, nro. 5, eKr. Rooma, toim. Virtanen",
    "pl": "np. Kraków, m. in. Kraków, ul. Długa, św. Jan, prof. Nowak, p.n.e. Rzym, im. Kopernika, tzw. Kraków",
    "cs": "např. Praha, tzv. Praha, Mgr. Novák, MUDr. Novák, čl. 5, př. n. l. Řím, sv. Václav",
    "sk": "napr. Košice, t. j. Košice, atď. Košice, prof. Novák, č. 5, nám. Mieru",
    "hu": "pl. Budapest, stb. Budapest, ifj. Kovács, Kr. e. Róma, márc. 15, 23. Kovács, özv. Kovács",
    "ro": "dl. Popescu, d-na. Popescu, str. Lungă, alin. 3, î.Hr. Roma, jud. Cluj",
    "ru": "г. Москва, т. е. Москва, А. С. Пушкин, им. Ленина, рис. 3, н. э. Рим, просп. Мира, тыс. Россиян",
    "uk": "м. Київ, вул. Шевченка, т. зв. Київ, ім. Шевченка, обл. Київ, тис. Українців",
    "bg": "гр. София, ул. Раковски, т.е. София, чл. 5, проф. Иванов, бул. Левски",
    "el": "κ. Παππάς, π.χ. Αθήνα, βλ. Καβάφης, μ.Χ. Ρώμη, σελ. 12, κλπ. Αθήνα",
    "tr": "Dr. Yılmaz, vb. Ankara, bkz. Ankara, Cad. Atatürk, M.Ö. Roma, Prof. Yılmaz",
    "hr": "npr. Zagreb, tzv. Zagreb, sv. Ivan, čl. 5, A. G. Matoš, gđa. Horvat",
    "sl": "npr. Koper, t. i. Koper, itd. Koper, dr. Novak, št. 5, inž. Novak",
    "sr": "нпр. Београд, тзв. Београд, проф. Јовић, св. Сава, чл. 5, н. е. Рим",
    "id": "Dr. Sukarno, Jl. Sudirman, hlm. 12, dsb. Jakarta, Tn. Sukarno, tgl. 5",
}


@pytest.mark.parametrize(("known", "share"), [(True, 0), (False, 0.1)], ids=["language given", "not given"])
def test_usual_abbreviations_end_no_sentence(known: bool, share: float) -> None:
    cut = []
    for language, items in ABBREVIATIONS.items():
        for item in items.split(", "):
            text = f"Abab baba {item} baba."
            if sentences(text, language if known else None) != [text]:
                cut.append(f"{language} {item}")
    total = sum(len(items.split(", ")) for items in ABBREVIATIONS.values())
    assert len(cut) <= share * total, cut


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("km", "នេះជាសៀវភៅ។ តើគាត់នៅឯណា។ ខ្ញុំមិនដឹងទេ៕", ["នេះជាសៀវភៅ។", "តើគាត់នៅឯណា។", "ខ្ញុំមិនដឹងទេ៕"]),
        ("my", "စမ်းသပ်မှု၏ ရလဒ်များသည် ကောင်းမွန်သည်။ ငြိမ်းချမ်းမှု၊ ရှိသည်။", ["စမ်းသပ်မှု၏ ရလဒ်များသည် ကောင်းမွန်သည်။", "ငြိမ်းချမ်းမှု၊ ရှိသည်။"]),
        ("bo", "མཐོངས་དང༌། དྲང་བདེན། ཞི་བདེ་ཡིན།", ["མཐོངས་དང༌། དྲང་བདེན།", "ཞི་བདེ་ཡིན།"]),
    ],
)
def test_marks_that_end_sentences_in_other_scripts(language: str, text: str, expected: list[str]) -> None:
    assert sentences(text, language) == sentences(text) == expected


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("en", ["(See fig. 3.)", "The curve is flat (cf. Darwin etc.) Here.", "[It was late.]", "He slept."]),
        ("en", ["1. It was Dr. Brown, approx. five years old.", "It was not he."]),
        ("ja", ["彼は「猫が好きです。」と言った。", "彼女は『行こう！』って叫んだ。", "犬もいる。"]),
        ("ko", ['그는 "고양이가 좋아요."라고 말했다.', "“어디 가니?” 하고 물었다.", "그는 갔다."]),
        ("vi", ["Mọi người.", "Không ai."]),
        ("ka", ["ეს წიგნია.", "ის კატაა."]),
        ("en", ["he came.", "she left.", "they stayed."]),
    ],
)
def test_sentences_are_whole(language: str, expected: list[str]) -> None:
    for form in ("NFC", "NFD"):
        text = unicodedata.normalize(form, ("" if language == "ja" else " ").join(expected))
        assert [unicodedata.normalize("NFC", found) for found in sentences(text, language)] == expected


@pytest.mark.parametrize("line_break", ["\n", "\r\n"], ids=ascii)
def test_a_line_break_that_only_wraps_a_text_ends_no_sentence(line_break: str) -> None:
    wrapped = (
        "The old mill beside the river was bought by the town last spring, and\nsince then volunteers have been "
        "repairing its wheel, which had not\nturned for more than eighty years. The cat sleeps."
    )
    flat = wrapped.replace("\n", " ")
    text = f"The old mill\n\n{wrapped}\n\nIts wheel\nIts roof".replace("\n", line_break)
    found = [sentence.replace(line_break, " ") for sentence in sentences(text, "en")]
    assert found == ["The old mill", *sentences(flat, "en"), "Its wheel", "Its roof"]
    assert len(found) == 5


def test_a_quotation_mark_without_its_counterpart_hides_no_ends() -> None:
    text = '"The cat sat. ' + "It was warm there. " * 50 + '"Yes'
    assert len(sentences(text, "en")) > 40


@pytest.mark.parametrize("marked", ["القِطَّةُ نَائِمَةٌ. الكَلْبُ يَجْرِي.", "Die Kat\u00adze schläft. Der Hu\u00adnd rennt."])
def test_marks_that_readers_ignore_change_no_sentence(marked: str) -> None:
    plain = IGNORED_MARKS.sub("", marked)
    for least in (0, 16, 24, 32):
        found = [join_short_spans(sentence_spans(text, None), text, least) for text in (marked, plain)]
        with_marks, without = ([text[a:b] for a, b in spans] for text, spans in zip((marked, plain), found))
        assert [IGNORED_MARKS.sub("", sentence) for sentence in with_marks] == without


def test_the_region_of_a_language_is_ignored() -> None:
    text = "Am 3. Mai kam er. Ja."
    assert sentences(text, "de-AT") == sentences(text, "DE_at") == sentences(text, "de") == ["Am 3. Mai kam er.", "Ja."]
    assert sentences(text, "en") != sentences(text, "de")


@pytest.mark.parametrize("text", ["", " ", "\n\n", "\t\u3000\u2029 \x85"], ids=ascii)
def test_white_space_has_no_sentence(text: str) -> None:
    assert sentences(text) == []


@pytest.mark.parametrize("separator", ["\n", " "], ids=["lines", "one line"])
def test_a_long_text_is_split_no_further_than_it_is_read(monkeypatch: pytest.MonkeyPatch, separator: str) -> None:
    characters_split = 0
    segment = sentencex.segment

    def counting(language: str, text: str) -> list[str]:
        nonlocal characters_split
        characters_split += len(text)
        return segment(language, text)

    monkeypatch.setattr(sentencex, "segment", counting)
    assert len(list(islice(sentence_spans(separator.join(["A cat sat."] * 100_000)), 3))) == 3
    assert characters_split <= 20_000


def test_a_long_line_is_split_where_a_short_one_is() -> None:
    short = ["The cat sat.", "It was warm there!", "Did the dog, see it?"]
    assert sentences(" ".join(short * 1000)) == short * 1000


def test_a_sentence_without_end_is_cut_and_nothing_of_it_is_lost() -> None:
    parts = sentences("One. " + "猫" * 25_000 + "。 Two.")
    assert parts[0] == "One."
    assert parts[-1] == "Two."
    assert "".join(parts[1:-1]) == "猫" * 25_000 + "。"
    assert max(map(len, parts)) <= 10_000


def test_a_missing_splitter_is_said_how_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(ImportError, match="pip install sentencex"):
        importlib.reload(segmentation_hmde)


@given(st.text(alphabet=st.characters(categories=["Cs", "Ll", "So"])))
def test_replaced_surrogates_leave_a_text_of_the_same_length_that_has_a_utf_8_form(text: str) -> None:
    replaced = replace_surrogates(text)
    assert len(replaced) == len(text)
    replaced.encode()
    assert all(new == old or "\ud800" <= old <= "\udfff" for new, old in zip(replaced, text, strict=True))


@pytest.mark.parametrize("language", ["\ud800", "e\udfff", "xx", "-", "", "\x00", "ENGLISH"])
def test_a_language_code_that_means_nothing_gets_the_general_rules(language):
    text = "Is it Dr. Smith? Yes. He came."
    assert list(sentence_spans(text, language)) == list(sentence_spans(text, "en"))


@given(PROSE, LANGUAGES, st.integers(0, 40))
def test_short_sentences_are_joined_to_their_neighbours_and_long_ones_stay(
    text: str, language: str | None, min_bytes: int
) -> None:
    spans = list(sentence_spans(text, language))
    joined = list(join_short_spans(spans, text, min_bytes))
    if min_bytes <= 1:
        assert joined == spans
    # Each joined sentence begins where one begins and ends where one ends, in order, and nothing is left out.
    inside = [[span for span in spans if begin <= span[0] and span[1] <= end] for begin, end in joined]
    assert [span for group in inside for span in group] == spans
    assert [(group[0][0], group[-1][1]) for group in inside] == joined
    for position, (group, (begin, end)) in enumerate(zip(inside, joined)):
        assert len(text[begin:end].encode()) >= min_bytes or len(joined) == 1
        if position < len(joined) - 1 and len(group) > 1:  # without its last sentence it would be too short
            assert len(text[begin : group[-2][1]].encode()) < min_bytes


def test_a_sentence_of_just_as_many_bytes_as_are_asked_for_stands_alone() -> None:
    assert list(join_short_spans([(0, 4), (4, 8)], "eins zwo", min_bytes=4)) == [(0, 4), (4, 8)]
    assert list(join_short_spans([(0, 4), (4, 8)], "eins zwo", min_bytes=5)) == [(0, 8)]


def test_no_more_sentences_are_read_than_joined_ones_are_asked_for() -> None:
    spans = iter([(0, 10), (10, 12), (12, 22), (22, 32), (32, 42)])
    assert next(join_short_spans(spans, "a" * 42, min_bytes=8)) == (0, 10)
    assert next(spans) == (22, 32)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("ko", "고양이가 잤다. 개가 보았다. 그날은 날씨가 아주 따뜻하고 좋았다. 네. 아니요."),
        ("vi", "Con mèo ngủ. Con chó nhìn thấy nó ở trên tấm thảm. Trời ấm áp! Đúng vậy."),
        ("fr", "Le chat dort. Où est-il\u00a0? Il est là\u00a0: sur le tapis. Déjà\u202f! Oui."),
    ],
)
def test_sentences_do_not_depend_on_how_accents_and_spaces_are_written(language: str, text: str) -> None:
    found = []
    for written in (*(unicodedata.normalize(form, text) for form in ("NFC", "NFD")), text.replace(" ", "\u00a0")):
        for least in (0, 16, 30, 48):
            spans = join_short_spans(sentence_spans(written, language), written, least)
            found.append([re.sub(r"\s", " ", unicodedata.normalize("NFC", written[begin:end])) for begin, end in spans])
    assert found[:4] == found[4:8] == found[8:]
    assert len(found[0]) > len(found[3])
