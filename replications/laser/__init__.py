"""LASER: bidirectional LSTMs that translate through one vector a sentence (Artetxe and Schwenk, 2019)."""

from transformers import AutoConfig, AutoModel

from replications.laser.modeling_laser import LaserConfig, LaserModel

AutoConfig.register(LaserConfig.model_type, LaserConfig)  # so that the Auto classes open its folders
AutoModel.register(LaserConfig, LaserModel)
