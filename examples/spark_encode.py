"""Encode a collection with Spark: each worker loads the model once.

    pip install torch transformers sentencex pyspark pandas pyarrow   (needs Java 17)
    python spark_encode.py MODEL DOCUMENTS OUTPUT WORKERS

MODEL is a saved HMDE (folder or Hub name) that all workers reach. DOCUMENTS and OUTPUT are folders of Parquet files,
which may lie in an object store (s3a://bucket/folder): `id`, `text` and `language` become `id` and `embedding`.
"""

import sys
from functools import cache

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf
from transformers import AutoModel, AutoTokenizer


@cache  # Spark keeps its Python workers from task to task
def loaded(name: str) -> tuple:
    load = {"trust_remote_code": True}
    return AutoModel.from_pretrained(name, **load), AutoTokenizer.from_pretrained(name, **load)


if __name__ == "__main__":
    name, documents, output, workers = sys.argv[1:]
    spark = SparkSession.builder.master(f"local[{workers}]").getOrCreate()  # by spark-submit, the cluster's
    spark.sparkContext.addPyFile(__file__)  # what is imported is cached for all tasks of a worker

    @pandas_udf("array<float>")
    def embed(texts: pd.Series, languages: pd.Series) -> pd.Series:
        from spark_encode import loaded

        model, tokenizer = loaded(name)
        codes = [None if pd.isna(language) else language for language in languages]
        return pd.Series([*model.encode_documents(list(texts), tokenizer, language=codes)])

    rows = spark.read.parquet(documents).repartition(int(workers))
    rows.select("id", embed("text", "language").alias("embedding")).write.parquet(output)
