"""How fast SQL dumps are read, beside mwsql (`pip install mwsql`), in one run on one synthetic dump.

    python -m benchmarks.sql_dumps --rows 2000000

Both unpack the dump and give typed values: this project the columns that corpora need, in Arrow tables; mwsql, which
has no choice of columns, rows as its documentation iterates them, `rows(convert_dtypes=True)`. What mwsql takes to give
all values as strings, `rows()`, stands beside.
"""

from __future__ import annotations

import gzip
import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from jsonargparse import auto_cli

CREATE = """-- MariaDB dump 10.19  Distrib 10.5.23-MariaDB, for debian-linux-gnu (x86_64)
DROP TABLE IF EXISTS `categorylinks`;
CREATE TABLE `categorylinks` (
  `cl_from` int(8) unsigned NOT NULL DEFAULT 0,
  `cl_to` varbinary(255) NOT NULL DEFAULT '',
  `cl_sortkey` varbinary(230) NOT NULL DEFAULT '',
  `cl_timestamp` timestamp NOT NULL DEFAULT current_timestamp(),
  `cl_sortkey_prefix` varbinary(255) NOT NULL DEFAULT '',
  `cl_collation` varbinary(32) NOT NULL DEFAULT '',
  `cl_type` enum('page','subcat','file') NOT NULL DEFAULT 'page',
  PRIMARY KEY (`cl_from`,`cl_to`)
) ENGINE=InnoDB DEFAULT CHARSET=binary;
LOCK TABLES `categorylinks` WRITE;
"""


def main(argv: list[str] | None = None) -> None:
    print(json.dumps(auto_cli(compare, args=argv), indent=2))


def compare(rows: int = 2_000_000, rounds: int = 3) -> dict[str, object]:
    """Seconds and megabytes of SQL a second of each reader: the fastest of some rounds, taken in turn.

    Args:
        rows: of the synthetic categorylinks dump, about 110 bytes each.
        rounds: how often each reader reads it.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "testwiki-20250101-categorylinks.sql.gz"
        size = write_dump(path, rows)
        readers = {
            "this project": read_with_this_project,
            "mwsql": read_with_mwsql,
            "mwsql, strings": read_strings_with_mwsql,
        }
        seconds = {name: [seconds_of(read, path, rows) for _ in range(rounds)] for name, read in readers.items()}
    best = {name: min(rounds_of_one) for name, rounds_of_one in seconds.items()}
    return {
        "rows": rows,
        "megabytes of SQL": round(size / 1e6, 1),
        "seconds": {name: round(value, 2) for name, value in best.items()},
        "megabytes a second": {name: round(size / 1e6 / value, 1) for name, value in best.items()},
        "times as fast as": {name: round(best[name] / best["this project"], 1) for name in ("mwsql", "mwsql, strings")},
    }


def write_dump(path: Path, rows: int) -> int:
    """Writes a categorylinks dump of the older schema with INSERT lines of a megabyte; returns its size unpacked."""
    draw = random.Random(0)
    thing = "d\\'un"  # a tenth of the titles have a quote
    size = 0
    with gzip.open(path, "wb", compresslevel=6) as stream:

        def write(text: str) -> None:
            nonlocal size
            size += stream.write(text.encode())

        write(CREATE)
        for begin in range(0, rows, 10_000):
            values = (
                f"({row // 5},'Category_of_{thing if row % 10 == 0 else 'things'}_(été)_"
                f"{int(draw.paretovariate(0.5)) % 10**6}',"
                f"'{draw.getrandbits(160):040X}','2024-01-0{row % 9 + 1} 10:00:00','','uca-default-u-kn','page')"
                for row in range(begin, min(begin + 10_000, rows))
            )
            write(f"INSERT INTO `categorylinks` VALUES {','.join(values)};\n")
        write("UNLOCK TABLES;\n\n-- Dump completed on 2025-01-01  0:00:00\n")
    return size


def seconds_of(read: Callable[[Path], int], path: Path, rows: int) -> float:
    begin = time.perf_counter()
    count = read(path)
    seconds = time.perf_counter() - begin
    if count != rows:
        raise ValueError(f"{read.__name__} read {count} rows of {rows}")
    return seconds


def read_with_this_project(path: Path) -> int:
    from training.corpus.dumps import read_dump

    return sum(len(table) for table in read_dump(path, ["cl_from", "cl_to", "cl_type"]))


def read_with_mwsql(path: Path) -> int:
    from mwsql import Dump

    return sum(1 for _ in Dump.from_file(path).rows(convert_dtypes=True))


def read_strings_with_mwsql(path: Path) -> int:
    from mwsql import Dump

    return sum(1 for _ in Dump.from_file(path).rows())


if __name__ == "__main__":
    main()
