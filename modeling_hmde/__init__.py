"""HMDE, the hierarchical multilingual document encoder. These files are what a model folder on the Hub contains."""

from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from .attribution_hmde import DocumentSentences, Explanation, SentenceScore, late_score, score_sentences
from .configuration_hmde import HMDEConfig
from .modeling_hmde import HMDEForDocumentEmbedding, HMDEForSequenceClassification, HMDEModel, HMDEOutput
from .tokenization_hmde import HMDETokenizer

# Where this package is installed, the Auto classes need no trust_remote_code.
AutoConfig.register("hmde", HMDEConfig)
AutoTokenizer.register(HMDEConfig, HMDETokenizer)
AutoModel.register(HMDEConfig, HMDEForDocumentEmbedding)
AutoModelForSequenceClassification.register(HMDEConfig, HMDEForSequenceClassification)

__all__ = [
    "DocumentSentences",
    "Explanation",
    "HMDEConfig",
    "HMDEForDocumentEmbedding",
    "HMDEForSequenceClassification",
    "HMDEModel",
    "HMDEOutput",
    "HMDETokenizer",
    "SentenceScore",
    "late_score",
    "score_sentences",
]
