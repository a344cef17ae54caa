"""Published data sets, from the files they are published in to the folders that evaluation/datasets/files.py describes.

Where a data set is a folder, it lies there as published; else it is a name on the Hugging Face Hub, or one of
ir_datasets. Languages are named by ISO 639-1 codes whatever the data set calls them.

Retrieval:

    clef           CLEF 2003 (ELRA-E0008, licensed). Arrange its files as documents/<language>/, any number of files as
                   they come, topics/<language>.* (Top-de03.txt is topics/de.txt) and qrels/<language>.*. A query is a
                   topic's title and description; of a document all text fields are read, but no keywords, which people
                   assigned. Files may be ISO-8859-1; those of all other formats are UTF-8.
    mldr           Shitao/MLDR
    ir_datasets    NeuCLIR (neuclir/1/fa/trec-2022 ...), CLIRMatrix (clirmatrix/de/multi8/en/test1 ...), MIRACL
                   (miracl/de/dev ...) and others, by their names in that library; the pair of languages is the task's
                   only one
    ntrex          a copy of github.com/MicrosoftTranslator/NTREX: documents that stand in 128 languages
    tatoeba        the files tatoeba.<xxx>-eng.<xxx> and .eng of LASER's data: sentences with English ones
    europarl       the files europarl-v7.<one>-<other>.<one> and .<other> (statmt.org/europarl): 2,000 sentences among
                   200,000 of the other language, those that MUSE draws

Classification:

    mldoc          Schwenk and Li 2018. Reuters' RCV1 and RCV2 come from NIST on signing their agreement
                   (trec.nist.gov/data/reuters/reuters.html); github.com/facebookresearch/MLDoc holds the lists of
                   documents and generate_documents.py, which writes <language>.train.1000, <language>.dev and
                   <language>.test, the language in English. Use those files, never a copy from elsewhere.
    masakhanews    masakhane/masakhanews; headline and text
    sib200         Davlan/sib200; sentences
    xnli           the folders XNLI-1.0 and, with translated training data, XNLI-MT-1.0 as their archives unpack
                   (cims.nyu.edu/~sbowman/xnli); premise and hypothesis, so text_pairs
    multieurlex    coastalcph/multi_eurlex, its archive data/multi_eurlex.tar.gz unpacked: train.jsonl, dev.jsonl and
                   test.jsonl; the first level of EuroVoc, several labels a document
"""

from __future__ import annotations

import csv
import gzip
import html
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import langcodes
import numpy as np
from huggingface_hub import hf_hub_download

from common.files import file_written_whole, write_text
from evaluation.datasets.files import LABEL_SEPARATOR, POOL, languages_of, lines, malformed, parsed_lines
from evaluation.recipes import ClassificationTask, RetrievalTask
from modeling_hmde.segmentation_hmde import replace_surrogates

Documents = Iterable[tuple[str, str]]  # id and text
Fields = TypeVar("Fields", tuple[str, str], list[str])

MLDOC_LANGUAGES = {
    "en": "english", "es": "spanish", "de": "german", "fr": "french", "it": "italian", "ru": "russian",
    "ja": "japanese", "zh": "chinese",
}  # fmt: skip

# The language that stands for a group of languages in FLORES, of which SIB-200 is made, and in NTREX.
INDIVIDUAL_LANGUAGES = {
    "ar": "arb", "az": "azj", "fa": "pes", "lv": "lvs", "mg": "plt", "mn": "khk", "ms": "zsm", "ne": "npi", "no": "nob",
    "om": "gaz", "or": "ory", "ps": "pbt", "sq": "als", "sw": "swh", "uz": "uzn", "yi": "ydd",
}  # fmt: skip

# Of Europarl: sentences that are sought, those that they are sought among, and the seed of both draws in MUSE.
EUROPARL_QUERIES, EUROPARL_SENTENCES, EUROPARL_SEED = 2_000, 200_000, 1234

# The fields of a CLEF document that an author wrote. TI, LD and TX are the news agencies' title, lead and text.
CLEF_TEXT_FIELDS = "HEADLINE|TITLE|SUBTITLE|LEAD|TEXT|BODY|TI|ST|LD|TX|WR|CAPTION"
_CLEF_FIELD = re.compile(rf"<({CLEF_TEXT_FIELDS})>(.*?)</\1>", re.DOTALL | re.IGNORECASE)
_CLEF_DOCUMENT = re.compile(r"<DOC>(.*?)</DOC>", re.DOTALL | re.IGNORECASE)
_CLEF_TOPIC = re.compile(r"<top>(.*?)</top>", re.DOTALL | re.IGNORECASE)
_MARKUP = re.compile(r"<[^>]*>")


def prepare(task: RetrievalTask | ClassificationTask, output: Path) -> None:
    """Write a task's data, of whatever format, to a folder as evaluation/datasets/files.py describes it.

    Args:
        task: whose `data` and `format` say what to read, and whose languages what to write.
        output: folder to write.

    Raises:
        ValueError: the format is unknown, or a file is missing or malformed.
    """
    formats: Any = RETRIEVAL_FORMATS if isinstance(task, RetrievalTask) else CLASSIFICATION_FORMATS
    if task.format not in formats:
        raise ValueError(f"format is {task.format!r}; it must be one of hmde, {', '.join(formats)}")
    formats[task.format](task, output)


# --- Retrieval ---


def clef(task: RetrievalTask, output: Path) -> None:
    query_languages, document_languages = languages(task)
    folder = Path(task.data)
    qrels = []
    for language in document_languages:
        files = sorted(path for path in (folder / "documents" / language).rglob("*") if path.is_file())
        if not files:
            raise ValueError(f"{folder / 'documents' / language} has no files; put the documents of {language} there")
        write_documents(output, language, (document for file in files for document in clef_documents(file)))
        file = only_file(folder / "qrels", language)
        for line_number, line in lines(file):
            fields = line.split()
            if len(fields) != 4:
                raise malformed(file, line_number, f"is no judgement; it has {len(fields)} fields, not 4")
            qrels.append(" ".join([fields[0].lstrip("C"), *fields[1:]]))
    for language in query_languages:
        write_queries(output, language, clef_topics(only_file(folder / "topics", language), language))
    write_text(qrels_file(task, output), "".join(line + "\n" for line in qrels))


def clef_documents(file: Path) -> Iterator[tuple[str, str]]:
    """The documents of one SGML file, of which there may be several in it.

    Raises:
        ValueError: the file has none, or one has no DOCNO.
    """
    documents = _CLEF_DOCUMENT.findall(clef_text(file))
    if not documents:
        raise ValueError(f"{file} has no <DOC> ... </DOC>; leave only CLEF's documents in the folder")
    for index, document in enumerate(documents, start=1):
        name = re.search(r"<DOCNO>\s*(\S+)\s*</DOCNO>", document, re.IGNORECASE)
        if name is None:
            raise ValueError(f"{file}, document {index}: has no <DOCNO>; it cannot be judged without")
        fields = (plain(content) for _, content in _CLEF_FIELD.findall(document))
        yield name[1], "\n".join(field for field in fields if field)


def clef_topics(file: Path, language: str) -> Iterator[tuple[str, str]]:
    """The id, without its C, and title and description of each topic.

    Raises:
        ValueError: the file has no topic, or one lacks a field, as where it is in another language.
    """
    topics = _CLEF_TOPIC.findall(clef_text(file))
    if not topics:
        raise ValueError(f"{file} has no <top> ... </top>; give CLEF's file of topics in {language}")
    for index, topic in enumerate(topics, start=1):
        fields = [
            re.search(rf"<{tag}>(.*?)(?=<[^>]*>\s*)", topic, re.DOTALL | re.IGNORECASE)
            for tag in ("num", rf"{language}-title", rf"{language}-desc")
        ]
        if not all(fields):
            raise ValueError(f"{file}, topic {index}: lacks <num>, <{language}-title> or <{language}-desc>")
        name, title, description = (plain(field[1]) for field in fields if field)
        yield name.lstrip("C"), f"{title} {description}"


def clef_text(file: Path) -> str:
    """The text of a file in UTF-8 or, as CLEF's older files are, ISO-8859-1; unpacked if its name ends in .gz.

    Raises:
        ValueError: the file is UTF-8 but for some bytes, or no whole gzip file.
    """
    try:
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{file} is no whole gzip file ({error}); take it anew") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        characters = content.decode("utf-8", errors="replace")
        if sum(character > "\x7f" for character in characters) > 2 * characters.count("\ufffd"):
            line_number = content.count(b"\n", 0, error.start) + 1
            raise malformed(file, line_number, f"is not UTF-8 ({error.reason}), as the file is; mend it") from None
        text = content.decode("iso-8859-1")
    return text.replace("\r\n", "\n")


def mldr(task: RetrievalTask, output: Path) -> None:
    part = task.split or "test"
    qrels = []
    for language in same_languages(task):
        folder = f"mldr-v1.0-{language}"
        corpus = fetch(task.data, f"{folder}/corpus.jsonl.gz")
        write_documents(output, language, fields_of_lines(corpus, lambda row: (row["docid"], row["text"])))
        file = fetch(task.data, f"{folder}/{part}.jsonl.gz")
        questions = list(fields_of_lines(file, lambda row: (row["query_id"], row["query"])))
        write_queries(output, language, questions)
        relevant = fields_of_lines(file, lambda row: [passage["docid"] for passage in row["positive_passages"]])
        qrels += [f"{query} 0 {docid} 1\n" for (query, _), docids in zip(questions, relevant) for docid in docids]
    write_text(qrels_file(task, output), "".join(qrels))


def from_ir_datasets(task: RetrievalTask, output: Path) -> None:
    import ir_datasets

    query_language, document_language = only_pair(task)
    try:
        dataset = ir_datasets.load(task.data)
    except KeyError:
        raise ValueError(f"data is {task.data!r}, which ir_datasets does not know; see ir-datasets.com") from None
    write_documents(output, document_language, ((doc.doc_id, doc.default_text()) for doc in dataset.docs_iter()))
    write_queries(output, query_language, ((query.query_id, query.default_text()) for query in dataset.queries_iter()))
    qrels = (f"{judged.query_id} 0 {judged.doc_id} {judged.relevance}\n" for judged in dataset.qrels_iter())
    write_text(qrels_file(task, output), "".join(qrels))


def ntrex(task: RetrievalTask, output: Path) -> None:
    folder = Path(task.data)
    names = [name for _, line in lines(folder / "DOCUMENT_IDS.tsv") for name in line.split()]
    for language in dict.fromkeys(part for side in languages(task) for part in side):
        file = ntrex_file(folder / "NTREX-128", language)
        sentences = [line for _, line in lines(file)]
        if len(sentences) != len(names):
            raise ValueError(f"{file} has {len(sentences)} lines, DOCUMENT_IDS.tsv {len(names)}; take both anew")
        documents: dict[str, list[str]] = {}
        for name, sentence in zip(names, sentences):
            documents.setdefault(name, []).append(sentence)
        write_documents(output, language, ((name, "\n".join(parts)) for name, parts in documents.items()))


def ntrex_file(folder: Path, language: str) -> Path:
    """The original for English; of a language in several regions the one without a region, else the first.

    Raises:
        ValueError: NTREX has no such language.
    """
    if language == "en":
        return folder / "newstest2019-src.eng.txt"
    code = long_code(language)
    named = [folder / f"newstest2019-ref.{name}.txt" for name in (code, INDIVIDUAL_LANGUAGES.get(language, code))]
    for file in [*named, *sorted(folder.glob(f"newstest2019-ref.{code}-*.txt"))]:
        if file.is_file():
            return file
    raise ValueError(f"{folder} has no {named[0].name}; NTREX-128 does not have the language {language}")


def tatoeba(task: RetrievalTask, output: Path) -> None:
    for pair in task.pairs:
        query_language, document_language = languages_of(pair)
        other = document_language if query_language == "en" else query_language
        codes = [long_code(other), INDIVIDUAL_LANGUAGES.get(other, other), "cmn"]  # zh is cmn there
        files = [Path(task.data) / f"tatoeba.{code}-eng.{code}" for code in codes[: 3 if other == "zh" else 2]]
        foreign = next((file for file in files if file.is_file()), files[0])
        file_of = {other: foreign, "en": foreign.with_suffix(".eng")}
        queries, documents = translations(file_of[query_language], file_of[document_language])
        write_translations(task, output, pair, dict(enumerate(queries)), documents)


def europarl(task: RetrievalTask, output: Path) -> None:
    for pair in task.pairs:
        sides = languages_of(pair)
        names = [f"europarl-v7.{one}-{other}" for one, other in (sides, sides[::-1])]
        name = next((name for name in names if (Path(task.data) / f"{name}.{sides[0]}").is_file()), names[0])
        texts = translations(*(Path(task.data) / f"{name}.{language}" for language in sides))
        drawn = drawn_by_muse(*texts)
        if len(drawn) < EUROPARL_SENTENCES:
            raise ValueError(
                f"{Path(task.data) / name}.* have {len(drawn)} sentences that are all different in both languages; the "
                f"task needs {EUROPARL_SENTENCES}, so give the whole files of Europarl"
            )
        kept = drawn[:EUROPARL_SENTENCES]
        draw = np.random.RandomState(EUROPARL_SEED)
        sought = draw.choice(range(EUROPARL_SENTENCES), size=EUROPARL_QUERIES, replace=False)
        queries = {int(row): texts[0][kept[row]] for row in sought}
        write_translations(task, output, pair, queries, [texts[1][row] for row in kept])


def drawn_by_muse(first: list[str], second: list[str]) -> list[int]:
    """The lines of two files in the order in which MUSE takes them, without those that repeat an earlier one in either
    language but for capitals: sorted by words, then drawn."""

    def unique(rows: list[int], texts: list[str]) -> list[int]:
        words = {row: "\0".join(texts[row].lower().split()) for row in rows}
        first_of: dict[str, int] = {}
        for row in rows:
            first_of.setdefault(words[row], row)
        return [first_of[key] for key in sorted(first_of)]

    rows = unique(unique(list(range(len(first))), first), second)
    return [rows[index] for index in np.random.RandomState(EUROPARL_SEED).permutation(len(rows))]


def translations(first: Path, second: Path) -> tuple[list[str], list[str]]:
    """The lines of two files, line by line translations.

    Raises:
        ValueError: a file is missing, or one has fewer lines.
    """
    one, other = ([line for _, line in lines(file)] for file in (first, second))
    if len(one) != len(other):
        raise ValueError(
            f"{first} has {len(one)} lines, {second.name} {len(other)}; they must be translations of each other, line "
            "by line, so take both anew"
        )
    return one, other


def write_translations(
    task: RetrievalTask, output: Path, pair: str, queries: Mapping[int, str], documents: list[str]
) -> None:
    """Write the set of one pair, in which a query seeks the document of its number."""
    query_language, document_language = languages_of(pair)
    write_queries(output / pair, query_language, ((str(row), text) for row, text in queries.items()))
    write_documents(output / pair, document_language, ((str(row), text) for row, text in enumerate(documents)))
    write_text(qrels_file(task, output / pair), "".join(f"{row} 0 {row} 1\n" for row in queries))


# --- Classification ---


def mldoc(task: ClassificationTask, output: Path) -> None:
    for language, part in parts(task):
        name = MLDOC_LANGUAGES.get(language)
        if name is None:
            raise ValueError(f"MLDoc has no language {language!r}; it has {', '.join(MLDOC_LANGUAGES)}")
        file = Path(task.data) / f"{name}.{'train.1000' if part == 'train' else part}"
        write_text(output / f"{language}.{part}.tsv", "".join(f"{line}\n" for _, line in lines(file)))


def masakhanews(task: ClassificationTask, output: Path) -> None:
    for language, part in parts(task):
        rows = table(fetch(task.data, f"data/{long_code(language)}/{part}.tsv"), "category", "headline", "text")
        write_labelled(output, language, part, ((category, f"{headline} {text}") for category, headline, text in rows))


def sib200(task: ClassificationTask, output: Path) -> None:
    for language, part in parts(task):
        code = INDIVIDUAL_LANGUAGES.get(language) or long_code(language)
        script = langcodes.get(language).maximize().script
        rows = table(fetch(task.data, f"data/{code}_{script}/{part}.tsv"), "category", "text")
        write_labelled(output, language, part, ((category, text) for category, text in rows))


def xnli(task: ClassificationTask, output: Path) -> None:
    folder = Path(task.data)
    for language, part in parts(task):
        labelled: Iterable[tuple[str, ...]]
        if part == "train":
            # The translations say contradictory.
            file = folder / "XNLI-MT-1.0" / "multinli" / f"multinli.train.{language}.tsv"
            rows = table(file, "label", "premise", "hypo", quoting=csv.QUOTE_NONE)
            labelled = ((label.replace("contradictory", "contradiction"), *texts) for label, *texts in rows)
        else:
            file = folder / "XNLI-1.0" / f"xnli.{part}.tsv"
            rows = table(file, "language", "gold_label", "sentence1", "sentence2", quoting=csv.QUOTE_NONE)
            labelled = [row[1:] for row in rows if row[0] == language]
            if not labelled:
                raise ValueError(f"{file} has no row in language {language!r}; leave it out")
        write_labelled(output, language, part, labelled)


def multieurlex(task: ClassificationTask, output: Path) -> None:
    for language, part in parts(task):

        def labels_and_text(row: Any, language: str = language) -> tuple[str, str]:
            return LABEL_SEPARATOR.join(row["eurovoc_concepts"]["level_1"]), row["text"].get(language) or ""

        laws = fields_of_lines(Path(task.data) / f"{part}.jsonl", labels_and_text)
        # A law may be missing in a language that joined later.
        write_labelled(output, language, part, ((labels, text) for labels, text in laws if text))


RETRIEVAL_FORMATS = {
    "clef": clef,
    "mldr": mldr,
    "ir_datasets": from_ir_datasets,
    "ntrex": ntrex,
    "tatoeba": tatoeba,
    "europarl": europarl,
}
CLASSIFICATION_FORMATS = {
    "mldoc": mldoc,
    "masakhanews": masakhanews,
    "sib200": sib200,
    "xnli": xnli,
    "multieurlex": multieurlex,
}


# --- What they share ---


def languages(task: RetrievalTask) -> tuple[list[str], list[str]]:
    """The query languages and the document languages of a task's pairs."""
    queries, documents = zip(*map(languages_of, task.pairs))
    return list(dict.fromkeys(queries)), [language for language in dict.fromkeys(documents) if language != POOL]


def same_languages(task: RetrievalTask) -> list[str]:
    """The languages of a task that has queries and documents in one language each time.

    Raises:
        ValueError: a pair has two.
    """
    for pair in task.pairs:
        if len(set(languages_of(pair))) > 1:
            raise ValueError(f"pair {pair}: {task.format} has queries in the documents' language only, such as de-de")
    return languages(task)[0]


def only_pair(task: RetrievalTask) -> tuple[str, str]:
    """Raises:
    ValueError: the task has more than one pair.
    """
    if len(task.pairs) != 1:
        raise ValueError(f"pairs is {task.pairs}; {task.format} holds one pair, so make a task of each")
    return languages_of(task.pairs[0])


def parts(task: ClassificationTask) -> list[tuple[str, str]]:
    """Language and part of each file that a task needs."""
    learnt = [(language, part) for language in task.train_languages for part in ("train", "dev")]
    return learnt + [(language, "test") for language in task.test_languages]


def long_code(language: str) -> str:
    """ISO 639-3.

    >>> long_code("de"), long_code("zh"), long_code("pcm")
    ('deu', 'zho', 'pcm')
    """
    return langcodes.get(language).to_alpha3()


def fetch(source: str, file: str) -> Path:
    """A file of a data set, from a folder or from the Hub.

    Raises:
        ValueError: the folder has no such file.
    """
    if not Path(source).is_dir():
        return Path(hf_hub_download(source, file, repo_type="dataset"))
    if not (Path(source) / file).is_file():
        raise ValueError(f"{source} has no {file}; a folder must hold a data set as it was published")
    return Path(source) / file


def only_file(folder: Path, language: str) -> Path:
    """The file of a language, whatever its name ends in.

    Raises:
        ValueError: there is none, or more than one.
    """
    files = sorted(folder.glob(f"{language}.*"))
    if len(files) != 1:
        raise ValueError(f"{folder} has {len(files)} files named {language}.*; it must have one")
    return files[0]


def fields_of_lines(path: Path, fields: Callable[[Any], Fields]) -> Iterator[Fields]:
    """The strings that `fields` takes from the object on each line of a jsonl file, packed or not, one at a time.

    Raises:
        ValueError: the file is missing or malformed, or an object lacks a field.
    """
    for line_number, row in parsed_lines(path):
        try:
            values = fields(row)
            if not all(isinstance(value, str) for value in values):
                raise TypeError(f"{values} are not all strings")
        except (KeyError, TypeError, AttributeError) as error:
            raise malformed(path, line_number, f"lacks a field, or has one of another type ({error!r})") from None
        yield values


def table(path: Path, *columns: str, quoting: Literal[0, 3] = csv.QUOTE_MINIMAL) -> Iterator[tuple[str, ...]]:
    """Some columns of a tab-separated file with a header, row by row.

    Args:
        quoting: csv.QUOTE_NONE where a quotation mark is a character like others.

    Raises:
        ValueError: the file is missing or malformed, or a row lacks a column.
    """
    # A text is written on one line anyway, and csv takes a lone carriage return for a line end.
    unbroken = (line.replace("\r", " ") + "\n" for _, line in lines(path))
    rows = csv.DictReader(unbroken, delimiter="\t", quoting=quoting)
    try:
        for row in rows:
            fields = [row.get(column) for column in columns]
            if None in fields:
                raise malformed(path, rows.line_num, f"lacks one of the columns {', '.join(columns)}")
            yield tuple(map(str, fields))
    except csv.Error as error:  # a field of more than csv.field_size_limit() characters
        raise malformed(path, rows.line_num + 1, f"cannot be read ({error}); close its quotation marks") from None


def plain(content: str) -> str:
    """The text in some markup, white space made single blanks."""
    return " ".join(html.unescape(_MARKUP.sub(" ", content)).split())


def write_documents(output: Path, language: str, documents: Documents) -> None:
    with (
        file_written_whole(output / "docs" / f"{language}.jsonl") as partial,
        partial.open("w", encoding="utf-8", newline="\n") as file,
    ):
        for doc_id, text in documents:
            document = {"doc_id": doc_id, "text": replace_surrogates(text)}
            file.write(json.dumps(document, ensure_ascii=False) + "\n")


def write_queries(output: Path, language: str, queries: Documents) -> None:
    write_text(output / "queries" / f"{language}.tsv", "".join(map(on_one_line, queries)))


def write_labelled(output: Path, language: str, part: str, labelled: Iterable[tuple[str, ...]]) -> None:
    write_text(output / f"{language}.{part}.tsv", "".join(map(on_one_line, labelled)))


def on_one_line(named: tuple[str, ...]) -> str:
    """
    >>> on_one_line(("q1", "Who sat\\non\\tthe mat?"))
    'q1\\tWho sat on the mat?\\n'
    >>> on_one_line(("neutral", "He sat.", "He lay."))
    'neutral\\tHe sat.\\tHe lay.\\n'
    """
    name, *texts = named
    return "\t".join([name, *(" ".join(replace_surrogates(text).split()) for text in texts)]) + "\n"


def qrels_file(task: RetrievalTask, output: Path) -> Path:
    return output / (f"qrels.{task.split}.tsv" if task.split else "qrels.tsv")
