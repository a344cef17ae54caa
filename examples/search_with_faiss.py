"""Put the vectors that `hmde encode` wrote into a FAISS index, save it, and search it.

    pip install torch transformers sentencex pyarrow faiss-cpu
    python search_with_faiss.py MODEL EMBEDDINGS INDEX QUESTION

EMBEDDINGS is the folder of shards that `hmde encode DOCUMENTS EMBEDDINGS --model MODEL` wrote, INDEX the file to write.
"""

import sys
from pathlib import Path

import faiss
import numpy as np
import pyarrow.parquet as pq
from transformers import AutoModel, AutoTokenizer

model_name, embeddings, index_file, question = sys.argv[1:]
table = pq.read_table(sorted(Path(embeddings).glob("shard-*.parquet")), columns=["id", "embedding"])
vectors = np.stack(table["embedding"].to_numpy())  # of length 1, so that inner products are cosines

index = faiss.IndexIDMap(faiss.IndexFlatIP(vectors.shape[1]))
index.add_with_ids(vectors, np.arange(len(vectors)))
faiss.write_index(index, index_file)

tokenizer = AutoTokenizer.from_pretrained(model_name, trust_remote_code=True)
model = AutoModel.from_pretrained(model_name, trust_remote_code=True)
cosines, rows = faiss.read_index(index_file).search(model.encode_queries([question], tokenizer), 3)
print(question)
for cosine, row in zip(cosines[0], rows[0]):
    print(f"  {cosine:.3f}  {table['id'][int(row)]}")
