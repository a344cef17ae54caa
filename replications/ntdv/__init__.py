"""NTDV: two translation models, and above their encoders what both languages share (Li 2021, chapter 3)."""

from transformers import AutoConfig, AutoModel

from replications.ntdv.modeling_ntdv import GRUConfig, GRUModel, NTDVConfig, NTDVModel

for config, model in ((GRUConfig, GRUModel), (NTDVConfig, NTDVModel)):
    AutoConfig.register(config.model_type, config)  # so that the Auto classes open their folders
    AutoModel.register(config, model)
