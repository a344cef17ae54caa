"""PEFT: an adapter is trained, saved and loaded; without it the model is what it was."""

import json
import sys

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModel, AutoTokenizer

folder, documents_file, question = sys.argv[1:]
with open(documents_file, encoding="utf-8") as lines:
    documents = [json.loads(line) for line in lines]
texts = [document["text"] for document in documents]

tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
model = AutoModel.from_pretrained(folder, trust_remote_code=True)
adapted = get_peft_model(model, LoraConfig(r=4, target_modules=r".*sentence_encoder.*\.(query|value)"))
optimizer = torch.optim.SGD(adapted.parameters(), lr=1.0)
for _ in range(2):
    adapted(**tokenizer(texts, padding=True, return_tensors="pt")).pooler_output.square().mean().backward()
    optimizer.step()
adapted.save_pretrained("adapter")

again = PeftModel.from_pretrained(AutoModel.from_pretrained(folder, trust_remote_code=True), "adapter")
trained = again.encode_documents(texts, tokenizer)
np.testing.assert_allclose(trained, adapted.encode_documents(texts, tokenizer), atol=1e-6)
with again.disable_adapter():
    vectors = again.encode_documents(texts, tokenizer)
    (query,) = again.encode_queries([question], tokenizer)
assert not np.allclose(trained, vectors, atol=1e-3)
cosines = vectors @ query

print(question)
for place in cosines.argsort()[::-1][:3]:
    print(f"  {cosines[place]:.3f}  {documents[place]['title']}")
