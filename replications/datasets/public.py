"""Fetches the public test sets of configuration/evaluate/public.yaml, 29 MB: XQuAD-R of LAReQA, the languages of
Tatoeba that XTREME takes, and 36 languages of SIB-200.

    python -m replications.datasets.public --output data/public

The files come from their repositories, at commits that are fixed here, and public.sha256 has the checksum of each. A
file that is already there and whole is kept. Licences: CC BY-SA 4.0, CC BY 2.0 FR and CC BY-SA 4.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import hmde.common.threads

from hmde.common.command_line import options_from, run
from hmde.common.fingerprints import digest
from hmde.common.progress import progress_bar
from hmde.common.records import lines

CHECKSUMS = Path(__file__).with_suffix(".sha256")
GITHUB = "https://raw.githubusercontent.com"
# By the folder of their files here.
ADDRESSES = {
    "lareqa": f"{GITHUB}/google-research-datasets/lareqa/9bc8c7fb6dd8d01d72a05a93c2cb96882b0d299c/xquad-r",
    "sib200/data": f"{GITHUB}/dadelani/sib-200/593cea88519930f776c1a4a1980b6a35b39dca57/data/annotated",
    "tatoeba": f"{GITHUB}/facebookresearch/LASER/74bc6ae7ffb7cba670fe0f428d0ede9f666fb821/data/tatoeba/v1",
}


@dataclass
class Options:
    """Fetches the public test sets of configuration/evaluate/public.yaml.

    Args:
        output: folder for them.
    """

    output: str


def main(argv: list[str] | None = None) -> None:
    output = options_from(Options, argv).output
    fetched = fetch(Path(output))
    print(f"{output}: {fetched} files fetched, and all are as their checksums say")


def fetch(output: Path) -> int:
    """Fetches the files that are missing or damaged.

    Returns:
        how many these were.

    Raises:
        OSError: a file cannot be reached.
        ValueError: a file is not the one of its checksum.
    """
    from torch.hub import download_url_to_file  # seconds, for which --help need not wait

    checksums = {name: checksum for _, line in lines(CHECKSUMS) for checksum, name in [line.split()]}
    missing = [name for name in checksums if not is_whole(output / name, checksums[name])]
    with progress_bar("files", len(missing), "file") as progress:
        for name in missing:
            folder = next(folder for folder in ADDRESSES if name.startswith(f"{folder}/"))
            address, path = ADDRESSES[folder] + name.removeprefix(folder), output / name
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                download_url_to_file(address, str(path), hash_prefix=checksums[name], progress=False)
            except OSError as error:
                raise OSError(f"{address} cannot be fetched ({error}); put the file at {path} yourself") from None
            except RuntimeError as error:
                raise ValueError(f"{address} is not the file that public.sha256 knows: {error}") from None
            progress.update()
    return len(missing)


def is_whole(path: Path, checksum: str) -> bool:
    return path.is_file() and digest(path) == checksum


if __name__ == "__main__":
    run(main)
