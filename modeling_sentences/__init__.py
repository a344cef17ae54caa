"""Sentence encoders that transformers lacks. A saved model's folder has the file of its kind, and needs no other."""

from transformers import AutoConfig, AutoModel

from .modeling_laser import LaserConfig, LaserModel
from .modeling_ntdv import GRUConfig, GRUModel, NTDVConfig, NTDVModel
from .modeling_tmde import TMDEConfig, TMDEModel

# Where this package is imported, the Auto classes need no trust_remote_code.
for config, model in (
    (GRUConfig, GRUModel),
    (LaserConfig, LaserModel),
    (NTDVConfig, NTDVModel),
    (TMDEConfig, TMDEModel),
):
    AutoConfig.register(config.model_type, config)
    AutoModel.register(config, model)

__all__ = [
    "GRUConfig",
    "GRUModel",
    "LaserConfig",
    "LaserModel",
    "NTDVConfig",
    "NTDVModel",
    "TMDEConfig",
    "TMDEModel",
]
