"""T-MDE: a transformer that translates through one vector a sentence (Li 2021, chapter 4)."""

from transformers import AutoConfig, AutoModel

from replications.t_mde.modeling_tmde import TMDEConfig, TMDEModel

AutoConfig.register(TMDEConfig.model_type, TMDEConfig)  # so that the Auto classes open its folders
AutoModel.register(TMDEConfig, TMDEModel)
