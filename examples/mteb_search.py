"""A saved HMDE under mteb, the public benchmark: `mteb.evaluate(model, tasks)` asks for vectors as this program does.

    pip install mteb sentencex
    python mteb_search.py MODEL DOCUMENTS QUESTION

MODEL is a saved HMDE (folder or Hub name), DOCUMENTS a JSON-lines file whose lines have a "title" and a "text".
"""

import json
import sys

import mteb
from datasets import Dataset
from mteb.models import SentenceTransformerEncoderWrapper
from mteb.types import PromptType
from torch.utils.data import DataLoader

model_name, documents_file, question = sys.argv[1:]
# By its name, not as a SentenceTransformer: mteb files the results of a local one under `no_model_name`.
model = SentenceTransformerEncoderWrapper(model_name, trust_remote_code=True)
task = mteb.get_task("BelebeleRetrieval").metadata


def encode(texts: list[str], prompt_type: PromptType):
    batches = DataLoader(Dataset.from_dict({"text": texts}), batch_size=32)
    return model.encode(batches, task_metadata=task, hf_split="test", hf_subset="default", prompt_type=prompt_type)


with open(documents_file, encoding="utf-8") as lines:
    documents = [json.loads(line) for line in lines]
vectors = encode([document["text"] for document in documents], PromptType.document)
cosines = model.similarity(encode([question], PromptType.query), vectors)[0]

print(question)
for place in cosines.argsort(descending=True)[:3]:
    print(f"  {cosines[place]:.3f}  {documents[place]['title']}")
