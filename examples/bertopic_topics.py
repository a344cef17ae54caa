"""Topics that nobody named with BERTopic, by the vectors of a saved HMDE, and search by the same vectors.

    pip install bertopic sentencex
    python bertopic_topics.py MODEL DOCUMENTS QUESTION

MODEL is a saved HMDE (folder or Hub name), DOCUMENTS a JSON-lines file whose lines have a "title" and a "text".
"""

import json
import sys

from bertopic import BERTopic
from bertopic.dimensionality import BaseDimensionalityReduction
from sentence_transformers import SentenceTransformer
from sklearn.cluster import KMeans

model_name, documents_file, question = sys.argv[1:]
encoder = SentenceTransformer(model_name, trust_remote_code=True)
with open(documents_file, encoding="utf-8") as lines:
    documents = [json.loads(line) for line in lines]
texts = [document["text"] for document in documents]

# For a few documents. BERTopic's own UMAP and HDBSCAN, which it takes if none is given, need hundreds.
topics = BERTopic(
    embedding_model=encoder, umap_model=BaseDimensionalityReduction(), hdbscan_model=KMeans(3, random_state=0)
)
topics.fit(texts)
print(topics.get_topic_info()[["Count", "Name"]].to_string(index=False))

vectors = topics.embedding_model.embed_documents(texts)
cosines = encoder.similarity(encoder.encode_query(question), vectors)[0]
print(question)
for place in cosines.argsort(descending=True)[:3]:
    print(f"  {cosines[place]:.3f}  {documents[place]['title']}")
