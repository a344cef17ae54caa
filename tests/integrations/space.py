"""The demo as a Space starts it, from a folder in which `app.py` and what it imports lie, asked over HTTP. It ranks by
the vectors of documents in float32 here, because the cosines that are expected are these."""

import os
import re
import runpy
import sys
from functools import partial
from pathlib import Path

import torch
from gradio_client import Client

folder, documents_file, question = sys.argv[1:]
os.environ |= {"HMDE_MODEL": str(Path(folder).resolve()), "HMDE_DOCUMENTS": str(Path(documents_file).parent.resolve())}
os.chdir("space")
sys.path.insert(0, os.getcwd())
import common.device  # noqa: E402  # of the Space

common.device.dtype_of = lambda name: torch.float32
app = runpy.run_path("app.py")
app["index"].search = partial(app["index"].search, ranking="dense")
_, url, _ = app["demo"].launch(prevent_thread_lock=True, quiet=True)
shown = Client(url, verbose=False).predict(question, app["LANGUAGES"], api_name="/search")
app["demo"].close()

print(question)
for title, score in re.findall(r'<h3>(.*?)</h3>.*?class="score">(.*?)</span>', shown)[:3]:
    print(f"  {score}  {title}")
