"""Published data sets, from the files they are published in to the folders that evaluation/readers.py describes.

Where a data set is a folder, it lies there as published; else it is a name on the Hugging Face Hub, or one of
ir_datasets. Languages are named by ISO 639-1 codes whatever the data set calls them.

Retrieval:

    clef           CLEF 2003 (ELRA-E0008, licensed). Arrange its files as documents/<language>/, any number of files as
                   they come, topics/<language>.* (Top-de03.txt is topics/de.txt) and qrels/<language>.*. A query is a
                   topic's title and description; of a document all text fields are read, but no keywords, which people
                   assigned. Files that are not UTF-8 are read as ISO-8859-1.
    mldr           Shitao/MLDR
    ir_datasets    NeuCLIR (neuclir/1/fa/trec-2022 ...), CLIRMatrix (clirmatrix/de/multi8/en/test1 ...), MIRACL
                   (miracl/de/dev ...) and others, by their names in that library; the pair of languages is the task's
                   only one
    ntrex          a copy of github.com/MicrosoftTranslator/NTREX: documents that stand in 128 languages
    tatoeba        the files tatoeba.<xxx>-eng.<xxx> and .eng of LASER's data: sentences with English ones; the pair of
                   languages is the task's only one

Classification:

    mldoc          Schwenk and Li 2018. Reuters' RCV1 and RCV2 come from NIST on signing their agreement
                   (trec.nist.gov/data/reuters/reuters.html); github.com/facebookresearch/MLDoc holds the lists of
                   documents and generate_documents.py, which writes <language>.train.1000, <language>.dev and
                   <language>.test, the language in English. Use those files, never a copy from elsewhere.
    masakhanews    masakhane/masakhanews; headline and text
    sib200         Davlan/sib200; sentences
    multieurlex    coastalcph/multi_eurlex, its archive data/multi_eurlex.tar.gz unpacked: train.jsonl, dev.jsonl and
                   test.jsonl; the first level of EuroVoc, several labels a document
"""

from __future__ import annotations

import csv
import gzip
import html
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import ir_datasets
import langcodes
from huggingface_hub import hf_hub_download

from evaluation.classification import LABEL_SEPARATOR, ClassificationTask
from evaluation.readers import POOL, languages_of
from evaluation.report import write_whole
from evaluation.retrieval import RetrievalTask

Documents = Iterable[tuple[str, str]]  # doc_id and text

MLDOC_LANGUAGES = {
    "en": "english", "es": "spanish", "de": "german", "fr": "french", "it": "italian", "ru": "russian",
    "ja": "japanese", "zh": "chinese",
}  # fmt: skip

# The language that stands for a group of languages in FLORES, of which SIB-200 is made, and in NTREX.
INDIVIDUAL_LANGUAGES = {
    "ar": "arb", "az": "azj", "fa": "pes", "lv": "lvs", "mg": "plt", "mn": "khk", "ms": "zsm", "ne": "npi", "no": "nob",
    "om": "gaz", "or": "ory", "ps": "pbt", "sq": "als", "sw": "swh", "uz": "uzn", "yi": "ydd",
}  # fmt: skip

# The fields of a CLEF document that an author wrote. TI, LD and TX are the news agencies' title, lead and text.
CLEF_TEXT_FIELDS = "HEADLINE|TITLE|SUBTITLE|LEAD|TEXT|BODY|TI|ST|LD|TX|WR|CAPTION"
_CLEF_FIELD = re.compile(rf"<({CLEF_TEXT_FIELDS})>(.*?)</\1>", re.DOTALL | re.IGNORECASE)
_CLEF_DOCUMENT = re.compile(r"<DOC>(.*?)</DOC>", re.DOTALL | re.IGNORECASE)
_CLEF_TOPIC = re.compile(r"<top>(.*?)</top>", re.DOTALL | re.IGNORECASE)
_MARKUP = re.compile(r"<[^>]*>")


def prepare(task: RetrievalTask | ClassificationTask, output: Path) -> None:
    """Write a task's data, of whatever format, to a folder as evaluation/readers.py describes it.

    Args:
        task: whose `data` and `format` say what to read, and whose languages what to write.
        output: folder to write.

    Raises:
        ValueError: the format is unknown, or a file is missing or malformed.
    """
    known = RETRIEVAL_FORMATS if isinstance(task, RetrievalTask) else CLASSIFICATION_FORMATS
    if task.format not in known:
        raise ValueError(f"format is {task.format!r}; it must be one of hmde, {', '.join(known)}")
    if isinstance(task, RetrievalTask):
        RETRIEVAL_FORMATS[task.format](task, output)
    else:
        CLASSIFICATION_FORMATS[task.format](task, output)


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
        for number, line in enumerate(decoded(file).splitlines(), start=1):
            fields = line.split()
            if len(fields) != 4:
                raise ValueError(f"{file}, line {number}: is no judgement; it has {len(fields)} fields, not 4")
            qrels.append(" ".join([fields[0].lstrip("C"), *fields[1:]]))
    for language in query_languages:
        write_queries(output, language, clef_topics(only_file(folder / "topics", language), language))
    write_whole(qrels_file(task, output), "".join(line + "\n" for line in qrels))


def clef_documents(file: Path) -> Iterator[tuple[str, str]]:
    """The documents of one SGML file, of which there may be several in it.

    Raises:
        ValueError: the file has none, or one has no DOCNO.
    """
    documents = _CLEF_DOCUMENT.findall(decoded(file))
    if not documents:
        raise ValueError(f"{file} has no <DOC> ... </DOC>; leave only CLEF's documents in the folder")
    for number, document in enumerate(documents, start=1):
        name = re.search(r"<DOCNO>\s*(\S+)\s*</DOCNO>", document, re.IGNORECASE)
        if name is None:
            raise ValueError(f"{file}, document {number}: has no <DOCNO>; it cannot be judged without")
        fields = (plain(content) for _, content in _CLEF_FIELD.findall(document))
        yield name[1], "\n".join(field for field in fields if field)


def clef_topics(file: Path, language: str) -> Iterator[tuple[str, str]]:
    """The number, without its C, and title and description of each topic.

    Raises:
        ValueError: the file has no topic, or one lacks a field, as where it is in another language.
    """
    topics = _CLEF_TOPIC.findall(decoded(file))
    if not topics:
        raise ValueError(f"{file} has no <top> ... </top>; give CLEF's file of topics in {language}")
    for number, topic in enumerate(topics, start=1):
        fields = [
            re.search(rf"<{tag}>(.*?)(?=<[^>]*>\s*)", topic, re.DOTALL | re.IGNORECASE)
            for tag in ("num", rf"{language}-title", rf"{language}-desc")
        ]
        if not all(fields):
            raise ValueError(f"{file}, topic {number}: lacks <num>, <{language}-title> or <{language}-desc>")
        name, title, description = (plain(field[1]) for field in fields if field)
        yield name.lstrip("C"), f"{title} {description}"


def mldr(task: RetrievalTask, output: Path) -> None:
    part = task.split or "test"
    qrels = []
    for language in same_languages(task):
        folder = f"mldr-v1.0-{language}"
        corpus = json_lines(fetch(task.data, f"{folder}/corpus.jsonl.gz"))
        write_documents(output, language, ((row["docid"], row["text"]) for row in corpus))
        questions = list(json_lines(fetch(task.data, f"{folder}/{part}.jsonl.gz")))
        write_queries(output, language, ((row["query_id"], row["query"]) for row in questions))
        qrels += [
            f"{row['query_id']} 0 {passage['docid']} 1\n" for row in questions for passage in row["positive_passages"]
        ]
    write_whole(qrels_file(task, output), "".join(qrels))


def from_ir_datasets(task: RetrievalTask, output: Path) -> None:
    query_language, document_language = only_pair(task)
    dataset = ir_datasets.load(task.data)
    write_documents(output, document_language, ((doc.doc_id, doc.default_text()) for doc in dataset.docs_iter()))
    write_queries(output, query_language, ((query.query_id, query.default_text()) for query in dataset.queries_iter()))
    qrels = (f"{judged.query_id} 0 {judged.doc_id} {judged.relevance}\n" for judged in dataset.qrels_iter())
    write_whole(qrels_file(task, output), "".join(qrels))


def ntrex(task: RetrievalTask, output: Path) -> None:
    folder = Path(task.data)
    names = decoded(folder / "DOCUMENT_IDS.tsv").split()
    for language in dict.fromkeys(part for side in languages(task) for part in side):
        file = ntrex_file(folder / "NTREX-128", language)
        sentences = decoded(file).splitlines()
        if len(sentences) != len(names):
            raise ValueError(f"{file} has {len(sentences)} lines, DOCUMENT_IDS.tsv {len(names)}; take both anew")
        documents: dict[str, list[str]] = {}
        for name, sentence in zip(names, sentences):
            documents.setdefault(name, []).append(sentence)
        write_documents(output, language, ((name, "\n".join(found)) for name, found in documents.items()))


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
    query_language, document_language = only_pair(task)
    foreign = long_code(document_language if query_language == "en" else query_language)
    names = {"en": "eng"}
    texts = {
        language: decoded(Path(task.data) / f"tatoeba.{foreign}-eng.{names.get(language, foreign)}").splitlines()
        for language in (query_language, document_language)
    }
    if len(set(map(len, texts.values()))) != 1:
        raise ValueError(f"the two files tatoeba.{foreign}-eng.* in {task.data} differ in their numbers of lines")
    write_queries(output, query_language, ((str(place), text) for place, text in enumerate(texts[query_language])))
    write_documents(
        output, document_language, ((str(place), text) for place, text in enumerate(texts[document_language]))
    )
    count = len(texts[query_language])
    write_whole(qrels_file(task, output), "".join(f"{place} 0 {place} 1\n" for place in range(count)))


# --- Classification ---


def mldoc(task: ClassificationTask, output: Path) -> None:
    for language, part in parts(task):
        name = MLDOC_LANGUAGES.get(language)
        if name is None:
            raise ValueError(f"MLDoc has no language {language!r}; it has {', '.join(MLDOC_LANGUAGES)}")
        file = Path(task.data) / f"{name}.{'train.1000' if part == 'train' else part}"
        write_whole(output / f"{language}.{part}.tsv", decoded(file))


def masakhanews(task: ClassificationTask, output: Path) -> None:
    for language, part in parts(task):
        rows = table(fetch(task.data, f"data/{long_code(language)}/{part}.tsv"))
        write_labelled(output, language, part, ((row["category"], f"{row['headline']} {row['text']}") for row in rows))


def sib200(task: ClassificationTask, output: Path) -> None:
    for language, part in parts(task):
        code = INDIVIDUAL_LANGUAGES.get(language) or long_code(language)
        script = langcodes.get(language).maximize().script
        rows = table(fetch(task.data, f"data/{code}_{script}/{part}.tsv"))
        write_labelled(output, language, part, ((row["category"], row["text"]) for row in rows))


def multieurlex(task: ClassificationTask, output: Path) -> None:
    for language, part in parts(task):
        rows = json_lines(Path(task.data) / f"{part}.jsonl")
        labelled = (
            (LABEL_SEPARATOR.join(row["eurovoc_concepts"]["level_1"]), row["text"][language])
            for row in rows
            if row["text"].get(language)  # a law may be missing in a language that joined later
        )
        write_labelled(output, language, part, labelled)


RETRIEVAL_FORMATS = {
    "clef": clef,
    "mldr": mldr,
    "ir_datasets": from_ir_datasets,
    "ntrex": ntrex,
    "tatoeba": tatoeba,
}
CLASSIFICATION_FORMATS = {"mldoc": mldoc, "masakhanews": masakhanews, "sib200": sib200, "multieurlex": multieurlex}


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


def decoded(path: Path) -> str:
    """The text of a file, unpacked if its name ends in .gz, without a byte order mark and with \\n for line ends. What
    is not UTF-8 is read as ISO-8859-1, as CLEF's older files are written.

    Raises:
        ValueError: the file is missing.
    """
    if not path.is_file():
        raise ValueError(f"{path} is missing; evaluation/formats.py says which files a data set consists of")
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("iso-8859-1")
    return text.replace("\r\n", "\n")


def json_lines(path: Path) -> Iterator[dict]:
    """The objects of a jsonl file, packed or not, one at a time.

    Raises:
        ValueError: the file is missing.
    """
    if not path.is_file():
        raise ValueError(f"{path} is missing; evaluation/formats.py says which files a data set consists of")
    open_file = gzip.open if path.suffix == ".gz" else open
    with open_file(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def table(path: Path) -> list[dict[str, str]]:
    """The rows of a tab-separated file with a header."""
    return list(csv.DictReader(decoded(path).splitlines(), delimiter="\t"))


def plain(content: str) -> str:
    """The text in some markup, white space made single blanks."""
    return " ".join(html.unescape(_MARKUP.sub(" ", content)).split())


def write_documents(output: Path, language: str, documents: Documents) -> None:
    path = output / "docs" / f"{language}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("w", encoding="utf-8", newline="\n") as file:
        for doc_id, text in documents:
            file.write(json.dumps({"doc_id": doc_id, "text": text}, ensure_ascii=False) + "\n")
    partial.replace(path)


def write_queries(output: Path, language: str, queries: Documents) -> None:
    lines = (f"{query_id}\t{' '.join(text.split())}\n" for query_id, text in queries)
    write_whole(output / "queries" / f"{language}.tsv", "".join(lines))


def write_labelled(output: Path, language: str, part: str, labelled: Iterable[tuple[str, str]]) -> None:
    lines = (f"{label}\t{' '.join(text.split())}\n" for label, text in labelled)
    write_whole(output / f"{language}.{part}.tsv", "".join(lines))


def qrels_file(task: RetrievalTask, output: Path) -> Path:
    return output / (f"qrels.{task.split}.tsv" if task.split else "qrels.tsv")
