"""Downloads Wikimedia's SQL dumps. Resumes interrupted downloads, verifies checksums, and keeps files already there."""

from __future__ import annotations

import hashlib
import re
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from hmde.common.files import locked
from hmde.common.progress import progress_bar
from hmde.common.records import lines, malformed
from training.corpus.database import SECONDS

TABLES = ("page", "page_props", "categorylinks", "linktarget")
USER_AGENT = {"User-Agent": "hmde-corpus/0.1 (https://pypi.org/project/hmde)"}  # Wikimedia turns away those without


class Unreachable(Exception):
    """A file that is neither here nor can be downloaded."""


def fetch_dumps(languages: list[str], folder: Path, date: str, mirror: str) -> dict[str, dict[str, Path]]:
    """The SQL dumps of the Wikipedias, by language and table; `linktarget` only where the dump has it.

    Args:
        folder: holds the dumps; those that are missing are downloaded into it.
        date: YYYYMMDD or latest.
        mirror: `<mirror>/<wiki>/<date>/` holds the files.

    Raises:
        ValueError: files are missing and cannot be downloaded, a wiki has no dump of that date, or a checksum is wrong.
    """
    folder.mkdir(parents=True, exist_ok=True)
    dumps: dict[str, dict[str, Path]] = {}
    missing: list[str] = []
    reason = ""
    for language in languages:
        wiki = f"{language.replace('-', '_')}wiki"
        prefix = f"{wiki}-{date}-"
        address = f"{mirror}/{wiki}/{date}/{prefix}"
        sums_file = folder / f"{prefix}sha1sums.txt"
        try:
            fetch(f"{address}sha1sums.txt", sums_file)
        except Unreachable as error:
            reason = str(error)
            tables = [table for table in TABLES if not (folder / f"{prefix}{table}.sql.gz").exists()]
            missing += [f"{address}sha1sums.txt", *(f"{address}{table}.sql.gz" for table in tables)]
            continue
        sums = read_sums(sums_file)
        dumps[language] = {}
        for table in TABLES:
            path = folder / f"{prefix}{table}.sql.gz"
            if table == "linktarget" and table not in sums:
                continue
            if table not in sums:
                raise ValueError(f"{sums_file} lists no {table}.sql.gz; choose another dump_date")
            try:
                fetch(f"{address}{table}.sql.gz", path, sums[table])
                dumps[language][table] = path
            except Unreachable as error:
                reason = str(error)
                missing.append(f"{address}{table}.sql.gz")
    if missing:
        listed = "\n  ".join(missing)  # among them linktarget.sql.gz, which no wiki has before 2022
        fault = f"are not in {folder} and cannot be downloaded ({reason})"
        raise ValueError(f"{len(missing)} files {fault}; copy them there:\n  {listed}")
    return dumps


def read_sums(path: Path) -> dict[str, str]:
    """SHA-1 by table. The table is the end of the file's name, since the list of `latest` has a date in the middle.

    Raises:
        ValueError: a line is no checksum and file name.
    """
    sums = {}
    for number, line in lines(path):
        sha1, _, name = line.partition("  ")
        if not re.fullmatch("[0-9a-f]{40}", sha1):
            raise malformed(path, number, f"{line[:60]!r} is no checksum and file name; download the list again")
        if name.endswith(".sql.gz"):
            sums[name.split("-", 2)[-1].removesuffix(".sql.gz")] = sha1
    return sums


def fetch(address: str, path: Path, sha1: str | None = None) -> None:
    """Downloads a file, from where the last attempt stopped. A file that is there is only verified.

    Raises:
        Unreachable: there is no network, or the server refuses.
        ValueError: the server has no such file, or the checksum is wrong; a download with a wrong one is deleted.
    """
    if path.exists():
        verify(path, sha1)
        return
    partial = path.with_name(path.name + ".partial")
    with locked(path):
        if not path.exists():  # another process may have downloaded it in the meantime
            _download(address, partial)
            try:
                verify(partial, sha1)
            except ValueError:
                partial.unlink()
                raise ValueError(
                    f"{address} has another SHA-1 than its list says; if the list is older, as one of `latest` may be, "
                    "delete the list; then run again"
                ) from None
            partial.rename(path)


def _download(address: str, partial: Path) -> None:
    begin = partial.stat().st_size if partial.exists() else 0
    headers = USER_AGENT | ({"Range": f"bytes={begin}-"} if begin else {})
    try:
        with urlopen(Request(address, headers=headers), timeout=60) as answer:
            resumed = answer.status == 206
            begin *= resumed
            length = None if answer.length is None else begin + answer.length
            with (
                partial.open("ab" if resumed else "wb") as file,
                progress_bar(partial.stem, length, unit="B") as progress,
            ):
                progress.initial = progress.n = begin
                while block := answer.read(1 << 20):
                    file.write(block)
                    progress.update(len(block))
    except HTTPError as error:
        if error.code == 416:  # all of it is there already
            return
        if error.code == 404:
            raise ValueError(f"{address}: 404 {error.reason}; there is no such dump") from None
        raise Unreachable(f"{error.code} {error.reason}") from None
    except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
        raise Unreachable(str(error)) from None
    if length not in (None, partial.stat().st_size):
        raise Unreachable(f"the connection broke off at {partial.stat().st_size} of {length} bytes")


def verify(path: Path, sha1: str | None) -> None:
    """
    Raises:
        ValueError: the file has another checksum.
    """
    if sha1 is None:
        return
    digest = hashlib.sha1(usedforsecurity=False)
    with (
        path.open("rb") as file,
        progress_bar(f"checksum of {path.name}", path.stat().st_size, unit="B", delay=SECONDS) as progress,
    ):
        while block := file.read(1 << 20):
            digest.update(block)
            progress.update(len(block))
    if (found := digest.hexdigest()) != sha1:
        raise ValueError(f"{path} has the SHA-1 {found}, its list says {sha1}; delete it and download it again")
