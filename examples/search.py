"""Search documents of one language with a question in another.

    pip install torch transformers sentencex
    python search.py MODEL DOCUMENTS QUESTION

MODEL is a saved HMDE (folder or Hub name), DOCUMENTS a JSON-lines file whose lines have a "title" and a "text".
"""

import json
import sys

from transformers import AutoModel, AutoTokenizer

model_name, documents_file, question = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(model_name, trust_remote_code=True)
model = AutoModel.from_pretrained(model_name, trust_remote_code=True)

with open(documents_file, encoding="utf-8") as lines:
    documents = [json.loads(line) for line in lines]
vectors = model.encode_documents([document["text"] for document in documents], tokenizer)
query = model.encode_queries([question], tokenizer)[0]
cosines = vectors @ query

print(f"{type(model).__name__} from {type(model).__module__}")
print(question)
for place in cosines.argsort()[::-1][:3]:
    print(f"  {cosines[place]:.3f}  {documents[place]['title']}")
