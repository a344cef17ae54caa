"""Pretrain a sentence encoder on pairs of sentences: InfoXLM, the lightweight encoder, the student of a teacher, or
encoders that translate: T-MDE, LASER and NTDV, with the models of translation on which it stands.

    accelerate launch training/pretrain_sentences.py --config configuration/pretrain_sentences/infoxlm.yaml [--key ...]

Reads a folder of parallel text (docs/sentence-encoders.md); writes a model folder that `AutoModel`, `AutoTokenizer` and
`HMDEForDocumentEmbedding.from_sentence_encoder` open, and beside it a training folder with checkpoints and logs, from
which `--resume true` goes on. On SIGTERM it finishes the step, saves a checkpoint and exits with code 143. All options:
`python training/pretrain_sentences.py --help`, or training/recipes.py.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import send_to_device, set_seed
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from common.command_line import options_from, run
from common.files import folder_written_whole
from common.fingerprints import fingerprint
from common.saved_models import model_type_of
from training.data.batches import Batches
from training.data.parallel import DevPairs, Pairs, Texts, fingerprint_of_pairs
from training.data.sentence_batches import SentenceBatch, SentenceCollator
from training.loop.cached_gradients import Embeddings, cut_into_chunks
from training.loop.checkpoints import describe_run
from training.loop.loop import Progress, Stage, total_steps, train, training_folder
from training.loop.meter import Work
from training.loop.momentum import MomentumQueue
from training.losses.sentences import sentence_losses
from training.model_card import write_sentence_model_card
from training.models import flops_per_position
from training.ntdv import build_ntdv, check_two_languages, tokenizer_of_translators
from training.recipes import PretrainSentencesRecipe
from training.sentence_models import (
    SentenceEncoder,
    Teacher,
    build_sentence_encoder,
    save_sentence_encoder,
    sentence_parameter_groups,
    train_tokenizer,
)

SENTENCE_PAIRS_OF_A_VOCABULARY = 1_000_000  # of which a tokenizer is trained, at most


def main(argv: list[str] | None = None) -> None:
    recipe = options_from(PretrainSentencesRecipe, argv)
    train(
        recipe,
        make_stage=functools.partial(sentence_stage, recipe),
        write_card=functools.partial(write_card, recipe),
    )


def sentence_stage(recipe: PretrainSentencesRecipe, accelerator: Accelerator) -> Stage[SentenceBatch]:
    """What the recipe trains, on what, towards what.

    Raises:
        ValueError: the pairs, the encoder, the decoder, the teacher or the queue are not what the recipe says.
    """
    set_seed(recipe.seed)
    texts = Texts(recipe.texts, recipe.language_exponent, recipe.max_length) if recipe.texts else None
    mixup = recipe.mixup and "xlco" in recipe.objectives
    pairs = Pairs(recipe.corpus, "train", mixup=mixup, texts=texts, seed=recipe.seed)
    dev_pairs = DevPairs(recipe.corpus, recipe.eval_pairs, recipe.seed)
    if recipe.queue_size > len(pairs):
        raise ValueError(
            f"queue_size is {recipe.queue_size}, but {recipe.corpus} has {len(pairs)} training pairs, so that each "
            "would meet itself there; lower it"
        )
    without_pivot = [languages for languages in pairs.languages if not {*recipe.pivots} & {*languages.split("-")}]
    if "translation" in recipe.objectives and without_pivot:
        raise ValueError(
            f"{recipe.corpus} has pairs of {without_pivot[0]}, of which neither is among pivots, which has "
            f"{', '.join(recipe.pivots)}; name one of them there, or take that table out of the corpus"
        )
    translates_one_way = recipe.decoder == "gru" and not recipe.translators
    if translates_one_way or recipe.translators:
        check_two_languages(recipe, pairs.languages)
    corpus = fingerprint_of_pairs(Path(recipe.corpus), recipe.texts)
    tokenizer = tokenizer_of(recipe, pairs, corpus, accelerator)
    if recipe.translators:
        encoder: SentenceEncoder = build_ntdv(recipe, tokenizer, pairs)
    else:
        encoder = build_sentence_encoder(recipe, tokenizer)
    if translates_one_way:
        (source,) = {*pairs.languages[0].split("-")} - {*recipe.pivots}
        encoder.model.config.update({"source_language": source, "target_language": recipe.pivots[0]})
    hidden_size, device = encoder.model.config.hidden_size, accelerator.device
    teacher = Teacher(recipe.teacher, recipe.teacher_pooling, hidden_size, device) if recipe.teacher else None
    collate = SentenceCollator(recipe, tokenizer, teacher.tokenizer if teacher else None)
    batches = Batches(
        pairs,
        collate,
        accelerator,
        batch_size=recipe.batch_size,
        accumulation=recipe.gradient_accumulation_steps,
        language_exponent=recipe.language_exponent,
        seed=recipe.seed,
        num_workers=recipe.num_workers,
    )
    set_seed(recipe.seed, device_specific=True)  # dropout of its own for each process, from here on
    queue = None
    if "xlco" in recipe.objectives:
        queue = MomentumQueue(encoder, recipe.queue_size, hidden_size, recipe.queue_momentum, device)

    def losses(embeddings: Embeddings, batch: SentenceBatch, keys: Embeddings | None) -> dict[str, Tensor]:
        of_teacher = None
        if teacher is not None:
            with accelerator.autocast():
                of_teacher = teacher.embed(batch.teacher_rows, recipe.max_tokens_per_chunk)
        losses_of = functools.partial(
            sentence_losses,
            embeddings,
            recipe,
            concepts=batch.concepts,
            languages=batch.languages,
            num_predicted=batch.num_predicted,
            teacher=of_teacher,
        )
        if queue is None or keys is None:
            return losses_of()
        of_batch = losses_of(keys=keys["keys"], queued=(queue.vectors, queue.concepts))
        queue.push(keys["keys"], batch.concepts)  # after the loss, in which they stand already
        return of_batch

    def work(batch: SentenceBatch) -> Work:
        tokens = sum(int(rows["attention_mask"].sum()) for rows in batch.rows.values())
        return Work(len(batch.names), tokens, tokens * flops_per_position(encoder.model.base_model))

    def validation_batches() -> Iterator[SentenceBatch]:
        examples = [*dev_pairs.examples()]
        for first in range(0, len(examples), recipe.batch_size):
            yield send_to_device(collate(examples[first : first + recipe.batch_size]), accelerator.device)

    def evaluate(encoder: Any) -> dict[str, float]:
        def encode(sentences: list[str]) -> Any:
            texts = [recipe.prompt + sentence for sentence in sentences]
            return encoder.encode(texts, tokenizer, recipe.max_length, recipe.max_tokens_per_chunk)

        return dev_pairs.evaluate(encode)

    def evaluate_translation(encoder: Any) -> dict[str, float]:
        rows = send_to_device(collate([*dev_pairs.examples()]).rows, accelerator.device)
        accuracy = encoder.token_accuracy(cut_into_chunks(rows, recipe.max_tokens_per_chunk))
        return {f"{pairs.languages[0]}_token_accuracy": accuracy, "token_accuracy": accuracy}

    def save(encoder: Any, folder: Path) -> None:
        save_sentence_encoder(encoder, tokenizer, folder, recipe.keep_mlm_head, recipe.keep_decoder)

    return Stage(
        encoder=encoder,
        parameter_groups=sentence_parameter_groups(encoder, recipe),
        total_steps=total_steps(recipe, batches.steps_per_epoch),
        batches=batches.from_step,
        losses=losses,
        work=work,
        evaluate=evaluate_translation if translates_one_way else evaluate,
        criterion="token_accuracy" if translates_one_way else "p_at_1",
        save=save,
        run=describe_run(asdict(recipe), corpus, accelerator.num_processes),
        validation_batches=validation_batches,
        queue=queue,
    )


def tokenizer_of(
    recipe: PretrainSentencesRecipe, pairs: Pairs, corpus: str, accelerator: Accelerator
) -> PreTrainedTokenizerBase:
    """That of the encoder to start from, of the translators, or that which the recipe names; or a new one, trained once
    and kept in the training folder.

    Args:
        corpus: fingerprint of the pairs.
    """
    if recipe.sentence_encoder is not None:
        model_type_of("sentence_encoder", recipe.sentence_encoder)
        return AutoTokenizer.from_pretrained(recipe.sentence_encoder)
    if recipe.translators:
        return tokenizer_of_translators(recipe)
    if recipe.tokenizer is not None:
        try:
            return AutoTokenizer.from_pretrained(recipe.tokenizer)
        except (OSError, ValueError) as error:
            raise ValueError(f"tokenizer: {recipe.tokenizer} has no tokenizer that opens: {error}") from error
    assert recipe.vocabulary_size is not None
    name = fingerprint(corpus, recipe.vocabulary_size, recipe.seed)
    folder = training_folder(recipe.output) / f"tokenizer-{name}"
    if accelerator.is_main_process and not folder.exists():
        sentences = pairs.sentences(SENTENCE_PAIRS_OF_A_VOCABULARY)
        with folder_written_whole(folder) as partial:
            train_tokenizer(sentences, recipe.vocabulary_size).save_pretrained(partial)
    accelerator.wait_for_everyone()
    return AutoTokenizer.from_pretrained(folder)


def write_card(recipe: PretrainSentencesRecipe, folder: Path, progress: Progress) -> None:
    write_sentence_model_card(
        folder, recipe.push_to_hub or recipe.output, asdict(recipe), progress.history, progress.kept_step
    )


if __name__ == "__main__":
    run(main)
