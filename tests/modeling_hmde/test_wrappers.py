"""HMDE in what libraries put around a model: its methods give the same, and what is saved opens everywhere."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import cpu_offload, disk_offload
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from torch import distributed, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModel
from transformers.integrations.neftune import activate_neftune

from modeling_hmde import HMDEConfig, HMDEForDocumentEmbedding, HMDEForSequenceClassification, HMDETokenizer
from tests.tiny_encoders import DOCUMENTS

MakeModel = Callable[..., HMDEForDocumentEmbedding]
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A group of one process, as torch's wrappers ask for."""
    store = tmp_path_factory.mktemp("group") / "store"
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def sharded(model: HMDEForDocumentEmbedding) -> Any:
    fully_shard(model)
    return model


def sharded_by_layers(model: HMDEForDocumentEmbedding) -> Any:
    for layer in (*model.hmde.sentence_encoder.encoder.layer, *model.hmde.document_encoder.layers):
        fully_shard(layer)
    return sharded(model)


def sharded_by_encoders(model: HMDEForDocumentEmbedding) -> Any:
    for encoder in (model.hmde.sentence_encoder, model.hmde.document_encoder):
        fully_shard(encoder)
    return sharded(model)


def offloaded(model: HMDEForDocumentEmbedding) -> Any:
    cpu_offload(model, execution_device=torch.device("cpu"))
    return model


def offloaded_to_disk(model: HMDEForDocumentEmbedding) -> Any:
    disk_offload(model, tempfile.mkdtemp(), execution_device=torch.device("cpu"))
    return model


def mapped_to_disk(model: HMDEForDocumentEmbedding) -> Any:
    model.save_pretrained(folder := tempfile.mkdtemp())
    return AutoModel.from_pretrained(folder, device_map={"": "disk"}, offload_folder=tempfile.mkdtemp())


def compiled(model: HMDEForDocumentEmbedding) -> Any:
    model.compile(backend="eager", dynamic=True)
    return model


def compiled_around(model: HMDEForDocumentEmbedding) -> Any:
    return torch.compile(model, backend="eager")


def with_lora(model: HMDEForDocumentEmbedding) -> Any:
    return get_peft_model(model, LoraConfig(target_modules=["query", "value"]))


WRAPPERS = [
    sharded,
    pytest.param(sharded_by_layers, marks=slow),
    pytest.param(sharded_by_encoders, marks=slow),
    offloaded,
    pytest.param(offloaded_to_disk, marks=slow),
    pytest.param(mapped_to_disk, marks=slow),
    pytest.param(compiled, marks=slow),
    pytest.param(compiled_around, marks=slow),
    pytest.param(with_lora, marks=slow),
]


def vectors_by_method(model: Any, tokenizer: HMDETokenizer) -> dict[str, np.ndarray]:
    """What each public method of a model makes of some texts."""
    explained = model.explain("The cat", DOCUMENTS, tokenizer)
    prepared = model.prepare_sentences(DOCUMENTS, tokenizer)
    rows = tokenizer(DOCUMENTS, padding=True, return_tensors="pt")
    queries = tokenizer(DOCUMENTS, padding=True, return_tensors="pt", as_queries=True)
    return {
        "forward": model(**rows).pooler_output.detach().numpy(),
        "embed_queries": model.embed_queries(**queries).detach().numpy(),
        "encode_documents": model.encode_documents(DOCUMENTS, tokenizer),
        "encode_queries": model.encode_queries(DOCUMENTS, tokenizer),
        "sentences": np.concatenate(
            [found.vectors for found in model.encode_documents(DOCUMENTS, tokenizer, sentences=True)[1]]
        ),
        "explain": np.array([sentence.score for document in explained for sentence in document.sentences]),
        "prepare_sentences": np.concatenate([document.vectors for document in prepared]),
    }


@pytest.mark.parametrize(
    "options",
    [
        {"passage_length": 60},
        pytest.param({}, marks=slow),
        pytest.param({"query_path": "document_encoder"}, marks=slow),
        pytest.param({"attn_implementation": "sdpa"}, marks=slow),
    ],
    ids=str,
)
@pytest.mark.parametrize("wrap", WRAPPERS)
def test_every_method_gives_the_same_whatever_is_around_the_model(
    wrap: Callable, options: dict, labse: Path, make_model: MakeModel, one_process: None
) -> None:
    options = {"sentence_pooling": "mean", "max_sentence_length": 60, **options}
    tokenizer = HMDETokenizer.from_sentence_encoder(str(labse), max_sentence_length=60)
    expected = vectors_by_method(make_model(labse, **options), tokenizer)
    wrapped = wrap(make_model(labse, **options))
    if wrap is mapped_to_disk:  # which is opened anew
        wrapped.set_attn_implementation(options.get("attn_implementation", "packed"))
    for method, vectors in vectors_by_method(wrapped, tokenizer).items():
        np.testing.assert_allclose(vectors, expected[method], atol=1e-6, err_msg=method)


# --- saved, and opened in a process that has nothing of this repository -----------------------------------------------


class Subclass(HMDEForDocumentEmbedding):
    """A user's, with a method more."""


class WithHead(HMDEForDocumentEmbedding):
    """A user's, with weights of its own."""

    def __init__(self, config: HMDEConfig) -> None:
        super().__init__(config)
        self.score = nn.Linear(config.hidden_size, 3)
        self.post_init()


class OwnTokenizer(HMDETokenizer):
    """A user's."""


def merged_lora(model: HMDEForDocumentEmbedding) -> Any:
    return with_lora(model).merge_and_unload()


def in_data_parallel(model: HMDEForDocumentEmbedding) -> Any:
    return DistributedDataParallel(model).module


def opened_as_a_classifier(model: HMDEForDocumentEmbedding) -> Any:
    return HMDEForSequenceClassification.from_pretrained(model.name_or_path, num_labels=2)


KINDS: dict[str, Callable] = {
    "plain": lambda model: model,
    "subclass": lambda model: Subclass.from_pretrained(model.name_or_path),
    "subclass with head": lambda model: WithHead.from_pretrained(model.name_or_path),
    "FSDP2": sharded,
    "DDP": in_data_parallel,
    "compiled": compiled_around,
    "compiled in place": compiled,
    "PEFT": with_lora,
    "PEFT merged": merged_lora,
    "classifier": opened_as_a_classifier,
}

OPEN_ALL = """
import sys
sys.modules["modeling_hmde"] = None  # as if it were not installed
import numpy as np
from pathlib import Path
from transformers import AutoModel, AutoTokenizer
from sentence_transformers import SentenceTransformer

root, *texts = sys.argv[1:]
for folder in [*Path(root).iterdir()]:
    model = AutoModel.from_pretrained(folder, trust_remote_code=True)
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    np.save(folder / "auto.npy", model.encode_documents(texts, tokenizer))
    if (folder / "modules.json").exists():
        model = SentenceTransformer(str(folder), trust_remote_code=True)
        np.save(folder / "sentence_transformers.npy", model.encode_document(texts, normalize_embeddings=True))
"""


@pytest.mark.parametrize("kinds", [["subclass with head", "FSDP2"], pytest.param([*KINDS], marks=slow)], ids=len)
def test_what_is_saved_opens_in_a_fresh_process_whatever_the_class_and_wrapper(
    kinds: list[str],
    model_folder: Path,
    tokenizer: HMDETokenizer,
    one_process: None,
    run_in_a_fresh_process: Callable[..., str],
    tmp_path: Path,
) -> None:
    expected = {}
    for kind in kinds:
        model = KINDS[kind](AutoModel.from_pretrained(model_folder))
        if kind.startswith("PEFT"):  # for which no adapter would do otherwise
            with torch.no_grad():
                for name, weight in model.named_parameters():
                    weight.add_(0.1 if "lora_B" in name else 0)
        weights = (
            get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)) if kind == "FSDP2" else None
        )
        model.save_pretrained(tmp_path / kind, **({"state_dict": weights} if weights else {}))
        OwnTokenizer.from_pretrained(model_folder).save_pretrained(tmp_path / kind)
        embedder = AutoModel.from_pretrained(model_folder) if kind == "classifier" else model
        expected[kind] = embedder.encode_documents(DOCUMENTS, tokenizer)
    run_in_a_fresh_process(OPEN_ALL, str(tmp_path), *DOCUMENTS, folder=tmp_path.parent)
    for kind, vectors in expected.items():
        names = ["auto.npy"] if kind == "PEFT" else ["auto.npy", "sentence_transformers.npy"]
        for name in names:
            np.testing.assert_allclose(np.load(tmp_path / kind / name), vectors, atol=1e-6, err_msg=f"{kind}, {name}")


def test_a_head_of_a_subclass_is_new_at_first_and_kept_later(model_folder: Path, tmp_path: Path) -> None:
    model = WithHead.from_pretrained(model_folder)
    model.save_pretrained(tmp_path)
    assert torch.equal(WithHead.from_pretrained(tmp_path).score.weight, model.score.weight)


def test_shards_are_not_saved_as_if_they_were_the_model(model_folder: Path, one_process: None, tmp_path: Path) -> None:
    model = sharded(HMDEForDocumentEmbedding.from_pretrained(model_folder))
    with pytest.raises(ValueError, match=r"the weights are in shards.*get_model_state_dict"):
        model.save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


# --- what trainers bring ----------------------------------------------------------------------------------------------


def test_noise_on_word_embeddings_is_that_of_a_padded_batch(
    labse: Path, make_model: MakeModel, tokenizer: HMDETokenizer
) -> None:
    """NEFTune's hook draws noise by the shape of what it sees, (texts, tokens, hidden)."""
    rows = tokenizer(DOCUMENTS, padding=True, return_tensors="pt")
    vectors = {}
    for attention in ("packed", "sdpa"):
        model = make_model(labse, attn_implementation=attention)
        plain = model(**rows).pooler_output
        activate_neftune(model, 5.0)
        model.get_input_embeddings().train()
        torch.manual_seed(0)
        vectors[attention] = model(**rows).pooler_output
        assert not torch.allclose(vectors[attention], plain, atol=1e-3)
    torch.testing.assert_close(vectors["packed"], vectors["sdpa"], rtol=1e-4, atol=1e-5)


def test_prompt_tuning_is_refused(labse: Path, make_model: MakeModel, tokenizer: HMDETokenizer) -> None:
    config = PromptTuningConfig(
        task_type="FEATURE_EXTRACTION", num_virtual_tokens=2, num_layers=2, token_dim=32, num_attention_heads=4
    )
    with pytest.raises(TypeError, match=r"inputs_embeds: HMDE finds sentences by their tokens.*use LoRA"):
        get_peft_model(make_model(labse), config)(**tokenizer(DOCUMENTS, padding=True, return_tensors="pt"))


@pytest.mark.parametrize("argument", ["labels", "token_type_ids", "position_ids", "mask"])
def test_an_argument_without_effect_is_refused(model: HMDEForDocumentEmbedding, labse: Path, argument: str) -> None:
    rows = {"input_ids": torch.tensor([[2, 7, 3]])}
    with pytest.raises(TypeError, match=f"the forward pass of HMDE has no argument {argument}"):
        model(**rows, **{argument: torch.tensor([[0, 0, 0]])})
    assert model(**rows, **{argument: None}).pooler_output is not None
