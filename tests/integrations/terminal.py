"""`python -m search`, from a folder in which `search/` lies."""

import json
import subprocess
import sys

folder, documents_file, question = sys.argv[1:]
search = [sys.executable, "-m", "hmde"]
subprocess.run([*search, "index", documents_file, "index", "--model", folder, "--dtype", "float32"], check=True)
found = subprocess.run(
    [*search, "query", "index", question, "--ranking", "dense", "--hits", "3", "--json", "true"],
    check=True,
    capture_output=True,
)

print(question)
for hit in json.loads(found.stdout):
    print(f"  {hit['score']:.3f}  {hit['title']}")
