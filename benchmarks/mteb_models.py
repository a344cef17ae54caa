"""The systems under mteb, the public benchmark: HMDE and its baselines as encoders that it knows how to ask.

    model = SystemForMTEB("hmde", SystemOptions("hmde", "runs/hmde"))
    mteb.evaluate(model, mteb.get_tasks(tasks=["MultiLongDocRetrieval"]))

Queries are encoded as the system encodes queries, everything else as documents. The language of a subset reaches the
sentence splitter.
"""

from __future__ import annotations

from typing import Any

import langcodes
import numpy as np
from mteb.models import ModelMeta
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ScoringFunction
from mteb.types import PromptType

from common.device import Dtype, dtype_of
from common.fingerprints import fingerprint_of_model
from evaluation.recipes import SystemOptions
from evaluation.systems import check_systems, load_system
from evaluation.systems.hmde import HMDESystem


class SystemForMTEB(AbsEncoder):
    """A system as an encoder of mteb.

    Args:
        name: of the model in mteb's results, `<organisation>/<model>`; without a `/` it is of `hmde`.
        options: the system, see SystemOptions.
        dtype: of weights and activations.

    Raises:
        ValueError: the model is not what the options say, or has no vectors.
    """

    def __init__(self, name: str, options: SystemOptions, dtype: Dtype = "auto") -> None:
        check_systems({name.replace("/", "-"): options})
        if options.ranks:
            raise ValueError(f"{name} ranks and has no vectors; mteb asks for vectors")
        self.system: Any = load_system(options, dtype_of(dtype))
        self.mteb_model_meta = model_meta(name, options, self.system)

    def encode(
        self,
        inputs: Any,
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        prompt_type: PromptType | None = None,
        **kwargs: Any,
    ) -> np.ndarray:
        """(texts, hidden), float32, of unit length.

        Args:
            inputs: batches with a list of texts under "text".
            task_metadata: says the languages of each subset.
            hf_split, prompt_type: what is encoded; only queries are encoded as such.
            hf_subset: part of the task.
            kwargs: of no use here.
        """
        texts = [text for batch in inputs for text in batch["text"]]
        if prompt_type == PromptType.query:
            return self.system.encode_queries(texts)
        return self.system.encode_documents(texts, language_of(task_metadata, hf_subset))


def language_of(task_metadata: Any, subset: str) -> str:
    """ISO 639-1 code of the documents of a subset: of its last language where there are two."""
    languages = task_metadata.eval_langs
    codes = languages[subset] if isinstance(languages, dict) else languages
    return langcodes.get(codes[-1]).language or "en"


def model_meta(name: str, options: SystemOptions, system: Any) -> ModelMeta:
    """What mteb wants to know of a model. Licence and training data stay empty, because most folders say nothing of
    them."""
    config = system.model.config if isinstance(system, HMDESystem) else None
    return ModelMeta(
        loader=None,
        name=name if "/" in name else f"hmde/{name}",
        revision=fingerprint_of_model(options.model),
        release_date=None,
        languages=None,
        n_parameters=sum(parameter.numel() for parameter in system.model.parameters()),
        memory_usage_mb=None,
        max_tokens=system.tokenizer.model_max_length if config else options.max_length,
        embed_dim=config.hidden_size if config else None,
        license=None,
        open_weights=True,
        public_training_code=None,
        public_training_data=None,
        framework=["PyTorch", "Transformers"],
        similarity_fn_name=ScoringFunction.COSINE,
        use_instructions=bool(options.query_prompt or options.document_prompt),
        training_datasets=None,
    )
