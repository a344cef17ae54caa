"""HMDE under mteb, on a small retrieval task whose data are local."""

from __future__ import annotations

from pathlib import Path

import ir_measures
import mteb
import numpy as np
import pytest
from datasets import Dataset
from ir_measures import nDCG
from mteb.cache import ResultCache
from mteb.models import SentenceTransformerEncoderWrapper
from mteb.types import PromptType
from torch.utils.data import DataLoader

from benchmarks.mteb_models import SystemForMTEB
from common.fingerprints import fingerprint_of_model
from evaluation.recipes import SystemOptions
from evaluation.systems import load_system
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from tests.local_mteb_task import DOCUMENTS, QRELS, QUERIES, LocalTask


@pytest.fixture
def recipe(tmp_path: Path, model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer) -> SystemOptions:
    model.save_pretrained(tmp_path / "hmde")
    tokenizer.save_pretrained(tmp_path / "hmde")
    return SystemOptions("hmde", model=str(tmp_path / "hmde"))


def test_the_score_of_mteb_is_that_of_the_systems_own_vectors(recipe: SystemOptions) -> None:
    result = mteb.evaluate(SystemForMTEB("hmde", recipe), LocalTask(), cache=None, show_progress_bar=False)
    system = load_system(recipe)
    queries = system.encode_queries(list(QUERIES.values()))
    cosines = queries @ system.encode_documents(list(DOCUMENTS.values()), "de").T
    run = {query: dict(zip(DOCUMENTS, map(float, row))) for query, row in zip(QUERIES, cosines)}
    expected = ir_measures.calc_aggregate([nDCG @ 10], QRELS, run)[nDCG @ 10]
    assert result[0].scores["test"][0]["ndcg_at_10"] == pytest.approx(expected, abs=1e-4)


def test_a_baseline_runs_too_and_its_meta_says_what_it_is(labse: Path) -> None:
    model = SystemForMTEB("lab/first", SystemOptions("first", model=str(labse), pooling="mean", query_prompt="query: "))
    assert model.mteb_model_meta.name == "lab/first"
    assert model.mteb_model_meta.embed_dim == 32
    assert model.mteb_model_meta.max_tokens == 512
    assert model.mteb_model_meta.use_instructions
    assert mteb.evaluate(model, LocalTask(), cache=None, show_progress_bar=False)[0].task_name == "Local"


def test_mteb_opens_a_folder_by_its_name_and_tells_queries_from_documents(
    recipe: SystemOptions, model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer
) -> None:
    texts = list(DOCUMENTS.values())
    encoder = SentenceTransformerEncoderWrapper(recipe.model, trust_remote_code=True)
    expected = {PromptType.query: model.encode_queries, PromptType.document: model.encode_documents}
    for prompt_type, encode in expected.items():
        vectors = encoder.encode(
            DataLoader(Dataset.from_dict({"text": texts}), batch_size=2),
            task_metadata=LocalTask.metadata,
            hf_split="test",
            hf_subset="default",
            prompt_type=prompt_type,
            normalize_embeddings=True,
        )
        np.testing.assert_allclose(vectors, encode(texts, tokenizer), atol=1e-6)


@pytest.mark.parametrize("route", ["a system", "a folder"])
def test_results_lie_under_the_models_own_name(route: str, recipe: SystemOptions, tmp_path: Path) -> None:
    if route == "a system":
        model, name = SystemForMTEB("lab/hmde", recipe), f"lab__hmde/{fingerprint_of_model(recipe.model)}"
    else:
        model = SentenceTransformerEncoderWrapper(recipe.model, trust_remote_code=True)
        name = f"{recipe.model.replace('/', '__')}/no_revision_available"
    mteb.evaluate(model, LocalTask(), cache=ResultCache(tmp_path / "mteb"), show_progress_bar=False)
    assert (tmp_path / "mteb" / "results" / name / "Local.json").is_file()


def test_mteb_looks_for_names_on_the_hub_and_refuses_a_folder(recipe: SystemOptions) -> None:
    with pytest.warns(UserWarning, match="Could not find model"), pytest.raises(NotImplementedError):
        mteb.get_model(recipe.model)


def test_bm25_is_refused() -> None:
    with pytest.raises(ValueError, match="bm25 ranks and has no vectors"):
        SystemForMTEB("bm25", SystemOptions("bm25"))
