"""Topics from a few labelled documents with SetFit, by the vectors of a saved HMDE, and search by the same vectors.

    pip install setfit sentencex
    python setfit_topics.py MODEL DOCUMENTS QUESTION

MODEL is a saved HMDE (folder or Hub name), DOCUMENTS a JSON-lines file whose lines have a "title" and a "text". Its
titles serve as the labels here.
"""

import json
import sys

from sentence_transformers import SentenceTransformer
from setfit import SetFitModel
from sklearn.linear_model import LogisticRegression

model_name, documents_file, question = sys.argv[1:]
encoder = SentenceTransformer(model_name, trust_remote_code=True)
with open(documents_file, encoding="utf-8") as lines:
    documents = [json.loads(line) for line in lines]
texts, titles = ([document[name] for document in documents] for name in ("text", "title"))

classifier = SetFitModel(encoder, LogisticRegression(C=1000), labels=titles)
# The head alone: setfit.Trainer trains the encoder too.
classifier.fit(texts, list(range(len(texts))), num_epochs=1)
print("told apart:", sum(found == title for found, title in zip(classifier.predict(texts), titles)), "of", len(texts))

vectors = classifier.encode(texts)
cosines = encoder.similarity(encoder.encode_query(question), vectors)[0]
print(question)
for place in cosines.argsort(descending=True)[:3]:
    print(f"  {cosines[place]:.3f}  {documents[place]['title']}")
