"""What a folder of sentence-transformers says of its sentence encoder: pooling, further modules, prompts.

It needs no torch, like the configuration.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transformers.utils import cached_file

# What may follow the matrix of a Dense module, by the names of torch.nn.
ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid", "Softplus", "ELU", "LeakyReLU")

# The fields of each module that HMDE knows, beside its type.
MODULE_FIELDS = {
    "dense": {"in_features", "out_features", "bias", "activation", "residual"},
    "layer_norm": {"dimension"},
    "dropout": {"p"},
    "normalize": set(),
    "truncate": {"size"},
}

# Settings that a transformer's configuration may have. HMDE reads `do_lower_case`, and has a limit of its own in place
# of `max_seq_length`. The others do not change how texts are read.
SETTINGS_OF_TRANSFORMER = {"max_seq_length", "do_lower_case", "modality_config", "module_output_name", "unpad_inputs"}

# Where sentence-transformers' configuration lies in the folder of its transformer, now and in older versions.
CONFIGURATIONS_OF_TRANSFORMER = ("sentence_bert_config.json", "sentence_roberta_config.json")

PROMPTS_OF_DOCUMENTS = ("document", "passage", "corpus")

OLD_POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


class Pipeline(NamedTuple):
    """What turns a text into the vector that sentence-transformers gives for it.

    Args:
        encoder: the subfolder of the transformer and its tokenizer.
        pooling: a `SentencePooling` of HMDEConfig.
        modules: `sentence_modules` of HMDEConfig.
        folders: of each module that is the folder's own, the subfolder with its weights.
        prompts: by name, what stands before a text.
        lower_case: whether texts are read in lower case, whatever the tokenizer does.
    """

    encoder: str = ""
    pooling: str = "cls"
    modules: tuple[dict[str, Any], ...] = ()
    folders: tuple[str, ...] = ()
    prompts: dict[str, str] = {}  # noqa: RUF012
    lower_case: bool = False

    def prompt(self, *names: str) -> str:
        """The prompt of the first of these names that has one; empty if none has."""
        return next((self.prompts[name] for name in names if self.prompts.get(name)), "")


def read_pipeline(
    name_or_path: str, pooling: str | None = None, modules: Sequence[dict[str, Any]] | None = None
) -> Pipeline:
    """The pipeline in a folder or a repository of the Hub.

    Args:
        pooling, modules: what is to stand in place of its own. None: its own, or, of a transformer by itself, the start
            token alone, as HMDEConfig has it.

    Raises:
        ValueError: HMDE does not know a module of the pipeline, or a setting of it. The message names it.
    """
    listed = _read(name_or_path, "", "modules.json")
    if listed is None:
        return Pipeline(pooling=pooling or "cls", modules=tuple(modules or ()))
    kinds = [_kind(module["type"]) for module in listed]
    if kinds[:2] != ["Transformer", "Pooling"]:
        names = ", ".join(module["type"] for module in listed[:2])
        raise ValueError(f"the pipeline of {name_or_path} begins with {names}; HMDE reads a Transformer and a Pooling")
    encoder, pooling_folder, *folders = (module["path"] for module in listed)
    config = _read(name_or_path, "", "config_sentence_transformers.json") or {}
    prompts = config.get("prompts") or {}
    if modules is None:
        modules = [_module(name_or_path, folder, kind) for folder, kind in zip(folders, kinds[2:])]
        if config.get("truncate_dim"):
            modules.append({"type": "truncate", "size": config["truncate_dim"]})
    else:
        folders = []
    return Pipeline(
        encoder=encoder,
        pooling=_pooling(name_or_path, _read(name_or_path, pooling_folder, "config.json") or {}, pooling, prompts),
        modules=tuple(modules),
        folders=tuple(folders),
        prompts=prompts,
        lower_case=_lower_case(name_or_path, encoder),
    )


def width_after(modules: Sequence[dict[str, Any]], width: int) -> int:
    """The size of vectors after some modules, for vectors of size `width`.

    Raises:
        ValueError: a module is unknown, has other fields than its own, or reads vectors of another size.
    """
    for place, module in enumerate(modules):
        name = f"sentence_modules[{place}]"
        fields = MODULE_FIELDS.get(str(module.get("type")))
        if fields is None:
            raise ValueError(f"{name} is {module}; its type must be one of {', '.join(MODULE_FIELDS)}")
        if {*module} != fields | {"type"}:
            raise ValueError(f"{name} is {module}; a module of this type has the fields {', '.join(sorted(fields))}")
        if module.get("activation", "Identity") not in ACTIVATIONS:
            raise ValueError(f"{name} has the activation {module['activation']}; HMDE knows {', '.join(ACTIVATIONS)}")
        reads = module.get("in_features", module.get("dimension", width))
        if reads != width:
            raise ValueError(f"{name} reads vectors of {reads} numbers, but gets vectors of {width}")
        width = module.get("out_features", width)
        width = min(width, module.get("size", width))
    return width


def _kind(module_type: str) -> str:
    """The class of a module of sentence-transformers; the whole path of any other module."""
    return module_type.rsplit(".", 1)[-1] if module_type.startswith("sentence_transformers.") else module_type


def _dense(config: dict[str, Any]) -> dict[str, Any]:
    activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    return {
        "type": "dense",
        "in_features": config["in_features"],
        "out_features": config["out_features"],
        "bias": config.get("bias", True),
        "activation": activation.rsplit(".", 1)[-1] if activation.startswith("torch.nn.") else activation,
        "residual": config.get("use_residual", False),
    }


READERS = {
    "Dense": _dense,
    "LayerNorm": lambda config: {"type": "layer_norm", "dimension": config["dimension"]},
    "Dropout": lambda config: {"type": "dropout", "p": config["dropout"]},
    "Normalize": lambda config: {"type": "normalize"},
}


def _module(name_or_path: str, folder: str, kind: str) -> dict[str, Any]:
    if kind not in READERS:
        raise ValueError(
            f"the pipeline of {name_or_path} has the module {kind}, which HMDE does not know (it knows "
            f"{', '.join(READERS)}); give sentence_modules to say what follows the pooling instead"
        )
    config = _read(name_or_path, folder, "config.json") or {}
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, "sentence_embedding"):
            raise ValueError(f"a {kind} module has {key} {config[key]!r}; HMDE reads those of sentence_embedding only")
    return READERS[kind](config)


def _pooling(name_or_path: str, config: dict[str, Any], chosen: str | None, prompts: dict[str, str]) -> str:
    modes = (
        chosen
        or config.get("pooling_mode")
        or [mode for key, mode in OLD_POOLINGS.items() if config.get(key)]
        or ["mean"]
    )
    modes = [modes] if isinstance(modes, str) else [*modes]
    if len(modes) > 1:
        raise ValueError(
            f"the Pooling of {name_or_path} joins {', '.join(modes)}; HMDE reads one of them: give it as "
            "sentence_pooling"
        )
    if not config.get("include_prompt", True) and any(prompts.values()):
        raise ValueError(
            f"the Pooling of {name_or_path} leaves the prompt's tokens out (include_prompt is false), which HMDE cannot"
        )
    return modes[0]


def _lower_case(name_or_path: str, folder: str) -> bool:
    configs = (_read(name_or_path, folder, file) for file in CONFIGURATIONS_OF_TRANSFORMER)
    config: dict[str, Any] = next((config for config in configs if config is not None), {})
    task = config.pop("transformer_task", "feature-extraction")
    if task != "feature-extraction":
        raise ValueError(f"the Transformer of {name_or_path} is for {task}; HMDE reads those for feature-extraction")
    for setting, value in config.items():
        if value and setting not in SETTINGS_OF_TRANSFORMER:
            raise ValueError(f"the Transformer of {name_or_path} has {setting} {value}, which HMDE does not know")
    return config.get("do_lower_case", False)


def _read(name_or_path: str, folder: str, file: str) -> Any:
    """The contents of a JSON file. None if there is no such file."""
    path = cached_file(name_or_path, file, subfolder=folder, _raise_exceptions_for_missing_entries=False)
    return None if path is None else json.loads(Path(path).read_text(encoding="utf-8"))
