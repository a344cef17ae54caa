"""The index of `python -m search` is killed at random moments while it is updated."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

from tests.attack.runs import saved_hmde

READ = """
import json, sys
from search.index import open_index
print(json.dumps({row["id"]: row["text"] for row in open_index(sys.argv[1]).table.search().to_list()}))
"""
WORDS = ["cat", "dog", "mat", "sun", "Katze", "Hund", "chat", "кот"]


def start(folder: Path) -> subprocess.Popen[bytes]:
    """An update, in a new process: the store does not survive a fork, so it is not used in this one."""
    options = [
        str(folder / "documents.jsonl"),
        str(folder / "index"),
        "--model",
        str(saved_hmde()),
        "--dtype",
        "float32",
    ]
    return subprocess.Popen(
        [sys.executable, "-m", "search", "index", *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def kill(random: Random, folder: Path) -> str:
    """An index of some documents is brought to others, and killed on the way. The next update completes it."""
    for _ in range(2):
        texts = {f"d{number}": " ".join(random.choices(WORDS, k=9)) for number in random.sample(range(60), 30)}
        lines = [json.dumps({"id": name, "title": name, "text": text}) for name, text in texts.items()]
        (folder / "documents.jsonl").write_text("\n".join(lines))
        process = start(folder)
        time.sleep(random.uniform(2, 9))
        process.send_signal(signal.SIGKILL)
        process.wait()
        last = start(folder)
        output = last.communicate()[0].decode()
        assert last.returncode == 0, output
        rows = json.loads(subprocess.check_output([sys.executable, "-c", READ, str(folder / "index")]))
        assert {name.rpartition("#")[2]: text for name, text in rows.items()} == texts, rows
    return "twice"
