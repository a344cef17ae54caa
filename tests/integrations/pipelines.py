"""transformers alone: both pipelines, each with the model that its Auto class makes of the folder."""

import json
import sys

import numpy as np
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

folder, documents_file, question = sys.argv[1:]
with open(documents_file, encoding="utf-8") as lines:
    documents = [json.loads(line) for line in lines]

extract = pipeline("feature-extraction", folder, trust_remote_code=True)
texts = [document["text"] for document in documents]
# The model's document vector is the mean of those of its sentences by their tokens (`token_mean`).
tokens = [np.bincount(sentence_ids) for sentence_ids in extract.tokenizer(texts)["sentence_ids"]]
vectors = np.stack([np.average(extract(text)[0], axis=0, weights=count) for text, count in zip(texts, tokens)])
(query,) = extract.model.encode_queries([question], extract.tokenizer)
cosines = vectors @ query / np.linalg.norm(vectors, axis=1)

classifier = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True, num_labels=3)
tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
classify = pipeline("text-classification", classifier, tokenizer=tokenizer)
for probabilities in classify(texts, top_k=None):
    assert {each["label"] for each in probabilities} == {"LABEL_0", "LABEL_1", "LABEL_2"}
    assert abs(sum(each["score"] for each in probabilities) - 1) < 1e-5

print(question)
for place in cosines.argsort()[::-1][:3]:
    print(f"  {cosines[place]:.3f}  {documents[place]['title']}")
