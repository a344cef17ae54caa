"""The classification head: equation 2, the losses of Hugging Face's heads, and what the config says of the labels."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

from modeling_hmde import HMDEForSequenceClassification, HMDETokenizer


def make_classifier(folder: Path, **options: object) -> HMDEForSequenceClassification:
    """A classifier whose weights are large enough that its probabilities differ."""
    model = HMDEForSequenceClassification.from_sentence_encoder(str(folder))
    model.config.update(options)
    model = HMDEForSequenceClassification(model.config).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if name.lower().endswith("norm.weight") else 0.0, std=0.4, generator=generator)
    return model


@pytest.fixture(scope="module")
def inputs(tokenizer: HMDETokenizer, documents: list[str]) -> dict[str, torch.Tensor]:
    return tokenizer(documents[:4], padding=True, return_tensors="pt")


def test_probabilities_are_those_of_equation_2(labse: Path, inputs: dict[str, torch.Tensor]) -> None:
    model = make_classifier(labse, num_labels=3)
    with torch.no_grad():
        probabilities = model(**inputs).logits.softmax(dim=-1)
        embeddings = model.hmde(**inputs).pooler_output
        weight, bias = model.classifier.weight, model.classifier.bias
        for embedding, actual in zip(embeddings, probabilities, strict=True):
            exponentials = [torch.exp(weight[label] @ embedding + bias[label]) for label in range(3)]
            expected = torch.stack([exponential / sum(exponentials) for exponential in exponentials])
            torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
    assert probabilities.std(dim=0).max() > 0.05


CLASSES = torch.tensor([2, 0, 1, 2])
SEVERAL = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 0.0]])
NUMBERS = torch.tensor([0.5, -1.0, 2.0, 0.0])


def cross_entropy(logits: torch.Tensor) -> torch.Tensor:
    probabilities = [row.exp() / row.exp().sum() for row in logits]
    return -sum(torch.log(row[label]) for row, label in zip(probabilities, CLASSES, strict=True)) / 4


def binary_cross_entropy(logits: torch.Tensor) -> torch.Tensor:
    probabilities = 1 / (1 + torch.exp(-logits))
    return -(SEVERAL * probabilities.log() + (1 - SEVERAL) * (1 - probabilities).log()).mean()


def squared_error(logits: torch.Tensor) -> torch.Tensor:
    return (logits[:, 0] - NUMBERS).square().mean()


@pytest.mark.parametrize(
    ("problem_type", "labels", "num_labels", "loss"),
    [
        ("single_label_classification", CLASSES, 3, cross_entropy),
        ("multi_label_classification", SEVERAL, 3, binary_cross_entropy),
        ("regression", NUMBERS, 1, squared_error),
    ],
)
@pytest.mark.parametrize("told", [True, False], ids=["told", "inferred"])
def test_the_loss_is_that_of_hugging_faces_heads_for_the_kind_of_labels(
    labse: Path,
    inputs: dict[str, torch.Tensor],
    problem_type: str,
    labels: torch.Tensor,
    num_labels: int,
    loss: object,
    told: bool,
) -> None:
    model = make_classifier(labse, num_labels=num_labels, problem_type=problem_type if told else None)
    output = model(**inputs, labels=labels)
    torch.testing.assert_close(output.loss, loss(output.logits), rtol=1e-5, atol=1e-5)
    assert model.config.problem_type == problem_type
    output.loss.backward()
    for module in (model.hmde.sentence_encoder, model.hmde.document_encoder, model.classifier):
        assert max(parameter.grad.abs().max() for parameter in module.parameters()) > 1e-4


def test_without_labels_there_is_no_loss(labse: Path, inputs: dict[str, torch.Tensor]) -> None:
    output = make_classifier(labse, num_labels=3)(**inputs)
    assert output.loss is None
    assert output.logits.shape == (4, 3)


def test_hidden_states_and_attentions_come_on_request(labse: Path, inputs: dict[str, torch.Tensor]) -> None:
    model = make_classifier(labse, num_labels=3)
    model.set_attn_implementation("eager")
    output = model(**inputs, output_hidden_states=True, output_attentions=True)
    assert [states.shape[-1] for states in output.hidden_states] == [32] * 3
    assert [weights.shape[1] for weights in output.attentions] == [8] * 2


def test_outputs_are_a_tuple_where_the_configuration_says_so(labse: Path, inputs: dict[str, torch.Tensor]) -> None:
    model = make_classifier(labse, num_labels=3, return_dict=False)
    (logits,) = model(**inputs)
    assert torch.equal(logits, model(**inputs, return_dict=True).logits)


def test_labels_and_problem_type_come_back_from_the_folder(labse: Path, tmp_path: Path) -> None:
    names = {0: "economics", 1: "markets", 2: "industry", 3: "society"}
    options = {
        "id2label": names,
        "label2id": {name: number for number, name in names.items()},
        "problem_type": "multi_label_classification",
    }
    make_classifier(labse, **options).save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert loaded.num_labels == loaded.classifier.out_features == 4
    assert {option: getattr(loaded.config, option) for option in options} == options


@pytest.mark.parametrize("labels", [{"num_labels": 3}, {"id2label": {0: "no", 1: "yes", 2: "perhaps"}}], ids=str)
def test_from_sentence_encoder_takes_the_labels(labse: Path, labels: dict) -> None:
    model = HMDEForSequenceClassification.from_sentence_encoder(str(labse), **labels)
    assert {option: getattr(model.config, option) for option in labels} == labels
    assert model.num_labels == model.classifier.out_features == 3


def test_the_trainers_loss_of_accumulated_batches_is_the_mean_over_their_documents(
    labse: Path, inputs: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    model = make_classifier(labse, num_labels=3)
    with torch.no_grad():
        expected = float(model(**inputs, labels=CLASSES).loss)
    examples = [{name: rows[i] for name, rows in inputs.items()} | {"labels": CLASSES[i]} for i in range(4)]
    arguments = TrainingArguments(
        str(tmp_path),
        per_device_train_batch_size=1,
        gradient_accumulation_steps=4,
        max_steps=1,
        learning_rate=0.0,
        report_to="none",
        use_cpu=True,
    )
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        module.attention_probs_dropout_prob = 0.0
    trained = Trainer(model, arguments, train_dataset=examples).train()
    assert trained.training_loss == pytest.approx(expected, rel=1e-4)


@torch.no_grad()
def test_on_request_a_classifier_in_training_reads_an_embedding_without_some_of_its_values(
    labse: Path, inputs: dict[str, torch.Tensor]
) -> None:
    model = make_classifier(labse, num_labels=3, classifier_dropout=0.5)
    embeddings = model.hmde(**inputs).pooler_output
    read = []
    model.classifier.register_forward_pre_hook(lambda _, arguments: read.append(arguments[0]))
    model(**inputs)
    assert torch.equal(read[0], embeddings)
    model.dropout.train()
    model(**inputs)
    dropped = read[1] == 0
    assert float(dropped.float().mean()) == pytest.approx(0.5, abs=0.2)
    torch.testing.assert_close(read[1][~dropped], 2 * embeddings[~dropped])
