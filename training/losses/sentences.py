"""Pretraining objectives of sentence encoders, as functions of logits and vectors, and their sum over all processes."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from training.losses.candidates import EPSILON, same_concept
from training.losses.distance_constraint import nearer_than_negatives
from training.losses.processes import mean_of_all_processes, rows_of_other_processes
from training.recipes import WORD_OBJECTIVES, PretrainSentencesRecipe

Queued = tuple[Tensor, Tensor]  # keys (rows, hidden) of earlier batches and their concepts (rows,)

SHRINK = 0.999  # of differences in equation 6, whose logarithm of a cosine is infinite at 1
LOTS = 6364136223846793005  # odd, so that its products, modulo 2 ** 64, are a permutation of all integers


def masked_words(logits: Tensor, labels: Tensor) -> Tensor:
    """Masked language modeling, of one text (mmlm) or of a text and its translation (tlm; Conneau and Lample, 2019):
    cross-entropy of each masked token (InfoXLM, equation 2).

    Args:
        logits: (masked tokens, vocabulary).
        labels: (masked tokens,), int64.

    Returns:
        (masked tokens,)
    """
    return F.cross_entropy(logits.float(), labels, reduction="none")


def words_from_vectors(logits: Tensor, target_ids: Tensor, target_shares: Tensor) -> Tensor:
    """The divergence of the words predicted from a sentence's vector from those it is to predict (Mao et al., 2021,
    equations 1 to 4; `word_targets` says which those are).

    KL(target || prediction), as in the authors' code; equation 2 has the arguments in the other order, which would be
    infinite, since most words have no share in the target.

    Args:
        logits: (sentences, vocabulary).
        target_ids: (sentences, targets), int64; an id may stand there more than once.
        target_shares: (sentences, targets), which add up to 1, or are all 0 where there is nothing to predict.

    Returns:
        (sentences,)
    """
    log_predicted = F.log_softmax(logits.float(), dim=-1)
    target = torch.zeros_like(log_predicted).scatter_add(1, target_ids, target_shares.float())
    return (torch.xlogy(target, target) - target * log_predicted).sum(dim=1)


def cross_lingual_contrast(
    queries: Tensor,
    keys: Tensor,
    others: Tensor,
    *,
    concepts: Tensor,
    other_concepts: Tensor,
    temperature: float,
) -> Tensor:
    """Cross-lingual contrast (InfoXLM, equation 6): each query seeks the key of its translation.

    Inner products are divided by a temperature, as in the authors' code (0.25), of which the paper says nothing; they
    are no cosines in either. A key of the query's own pair is never its negative.

    Args:
        queries: (pairs, hidden), of the trained encoder.
        keys: (pairs, hidden), of the momentum encoder. No gradient reaches them.
        others: (others, hidden), keys of other processes and of earlier batches.
        concepts: (pairs,), int64.
        other_concepts: (others,), int64.

    Returns:
        (pairs,)
    """
    logits = queries @ torch.cat([keys, others]).detach().T / temperature
    masked = same_concept(concepts, torch.cat([concepts, other_concepts]))
    own = torch.arange(len(queries), device=queries.device)
    masked[own, own] = False
    return F.cross_entropy(logits.masked_fill(masked, -torch.inf), own, reduction="none")


def alignment(first: Tensor, second: Tensor, other_first: Tensor, other_second: Tensor) -> Tensor:
    """Sentence alignment (Mao et al., 2021, equation 5): each sentence seeks its translation among those of the batch,
    both ways, by inner product.

    Args:
        first, second: (pairs, hidden).
        other_first, other_second: (others, hidden), the sentences of other processes.

    Returns:
        (pairs,)
    """
    own = torch.arange(len(first), device=first.device)
    there = F.cross_entropy(first @ torch.cat([second, other_second]).T, own, reduction="none")
    return there + F.cross_entropy(second @ torch.cat([first, other_first]).T, own, reduction="none")


def similarity_alignment(first: Tensor, second: Tensor, other_first: Tensor, other_second: Tensor) -> Tensor:
    """Sentence similarity (Mao et al., 2021, equation 6): two sentences of one language are as similar as their
    translations are.

    The sum over the sentences that one is compared with, of which a mean over sentences is taken, as of equation 5; so
    both are on the scale that they have in the paper. The authors' code takes the sum over both, but of equation 5 the
    mean. Differences are shrunk by a thousandth, which keeps the loss below 6.5 a difference and its gradient finite.

    Args:
        see `alignment`.

    Returns:
        (pairs,)
    """
    of_first = torch.softmax(first @ torch.cat([first, other_first]).T, dim=1)
    differences = of_first - torch.softmax(second @ torch.cat([second, other_second]).T, dim=1)
    return -(math.pi / 2 * SHRINK * differences).cos().log().sum(dim=1)


def translation(logits: Tensor, tokens: Tensor, label_smoothing: float) -> Tensor:
    """Translation, from the vector of a sentence (T-MDE, LASER): the cross-entropy of each token of the translation,
    given those before it, of which a share of `label_smoothing` goes to all words alike.

    Args:
        logits: (tokens, vocabulary).
        tokens: (tokens,), int64.

    Returns:
        (tokens,)
    """
    return F.cross_entropy(logits.float(), tokens, reduction="none", label_smoothing=label_smoothing)


def constrained_distance(
    anchors: Tensor,
    positives: Tensor,
    other_positives: Tensor,
    *,
    concepts: Tensor,
    languages: Tensor,
    recipe: PretrainSentencesRecipe,
) -> Tensor:
    """The distance constraint of cT-MDE and cLASER (Li 2021, equations 4.18 to 4.21 without their translation loss),
    one way: the distance of a sentence's translation, and by how much sentences drawn from those of the translation's
    language fail to be farther away by a margin.

    Distances are Euclidean, of vectors as they are, over the mean of all distances of the batch, as the thesis says;
    the authors' code takes no square either, but divides by the length of the mean vector. As in the code, both ways
    count (`sentence_losses` takes their mean), and the weight lambda of the thesis is an option, where the code always
    has a half. As in neither, a sentence is no negative of its own translation.

    Args:
        anchors, positives: (pairs, hidden); row i of the one is translated by row i of the other.
        other_positives: (others, hidden), those of other processes.
        concepts: (pairs + others,), int64, of the positives.
        languages: (pairs + others,), int64, of the positives.
        recipe: says margin, margin_weight and num_negatives.

    Returns:
        (pairs,)
    """
    distances = euclidean_distances(anchors, torch.cat([positives, other_positives]))
    pairs = len(anchors)
    own = torch.eye(*distances.shape, dtype=torch.bool, device=distances.device)
    others = ~same_concept(concepts[:pairs], concepts)
    distances = distances / (mean_of_all_processes(distances[others | own]) + EPSILON)
    drawn = negatives(pairs, concepts, languages, recipe.num_negatives)
    return nearer_than_negatives(distances, drawn, margin=recipe.margin, weight=recipe.margin_weight)


def squared_distance(
    anchors: Tensor,
    positives: Tensor,
    other_positives: Tensor,
    *,
    concepts: Tensor,
    languages: Tensor,
    recipe: PretrainSentencesRecipe,
) -> Tensor:
    """The distance constraint of cNV (Li 2021, equations 3.6 and 3.7, and the sum over N_s in 3.8), one way: what
    sentences drawn from those of the translation's language cost that are not farther away than the translation.

    The Frobenius norm of a matrix of context vectors is the length of these end to end, so vectors are taken here. As
    printed, a squared distance is divided by twice the mean length, which is not squared, so that longer vectors meet
    the constraint more easily. As in `constrained_distance` both ways count, where the thesis has one, and a
    sentence is no negative of its own translation.

    Args:
        anchors, positives, other_positives, concepts, languages: see `constrained_distance`.
        recipe: says margin and num_negatives.

    Returns:
        (pairs,)
    """
    distances = euclidean_distances(anchors, torch.cat([positives, other_positives])).square()
    norm = mean_of_all_processes(torch.cat([anchors, positives]).norm(dim=1))
    drawn = negatives(len(anchors), concepts, languages, recipe.num_negatives)
    differences = distances.diagonal().unsqueeze(1) - distances
    costs = F.relu(recipe.margin + recipe.margin * differences / (2 * norm + 1))
    return (costs * drawn).sum(dim=1)


def euclidean_distances(first: Tensor, second: Tensor) -> Tensor:
    """(first, hidden), (second, hidden) -> (first, second). Of equal vectors it is 0, and so is its gradient; a matrix
    product would leave rounding errors, whose root is large."""
    return torch.cdist(first, second, compute_mode="donot_use_mm_for_euclid_dist")


def negatives(pairs: int, concepts: Tensor, languages: Tensor, count: int) -> Tensor:
    """Which sentences are the negatives of each pair: `count` drawn by lot of those in its translation's language that
    are of another concept.

    Args:
        concepts, languages: (pairs + others,), int64, of the positives.

    Returns:
        (pairs, pairs + others), bool.
    """
    candidates = ~same_concept(concepts[:pairs], concepts) & (languages[:pairs, None] == languages)
    return drawn_by_lot(candidates, concepts[:pairs], concepts, count)


def drawn_by_lot(candidates: Tensor, rows: Tensor, columns: Tensor, count: int) -> Tensor:
    """Of the candidates of each row `count`, or all if there are fewer. Lots follow from the concepts alone, so that
    each process draws what one process would, and a run that goes on what it would have drawn.

    Args:
        candidates: (rows, columns), bool.
        rows, columns: their concepts, int64.

    Returns:
        (rows, columns), bool.
    """
    lots = (rows[:, None] ^ columns) * LOTS
    places = lots.masked_fill(~candidates, torch.iinfo(lots.dtype).max).argsort(dim=1).argsort(dim=1)
    return candidates & (places < count)


def distillation(first: Tensor, second: Tensor, teacher: Tensor) -> Tensor:
    """Both sentences of a pair learn the teacher's vector of the first (Reimers and Gurevych, 2020, equation 1): the
    mean of the squared differences.

    Args:
        first, second, teacher: (pairs, hidden).

    Returns:
        (pairs,)
    """
    return ((first - teacher) ** 2).mean(dim=1) + ((second - teacher) ** 2).mean(dim=1)


def sentence_losses(
    embeddings: dict[str, Tensor],
    recipe: PretrainSentencesRecipe,
    *,
    concepts: Tensor,
    languages: Tensor,
    num_predicted: dict[str, Tensor],
    keys: Tensor | None = None,
    queued: Queued | None = None,
    teacher: Tensor | None = None,
) -> dict[str, Tensor]:
    """The weighted losses of a batch, by objective. Their sum is minimised.

    Args:
        embeddings: by name: `mmlm`, `tlm` (pairs, 1), sums over the masked tokens of a row; `translation` (rows, 1),
            over the tokens of a translation; `sentences`
            (2 * pairs, hidden), the first ones and then the second; `words` (2 * pairs, 1), their divergences;
            `queries` (pairs, hidden). As far as the objectives need them.
        concepts: (pairs,), int64, the same for pairs whose sentences are.
        languages: (2, pairs), int64, of the first sentences and of the second.
        num_predicted: of `mmlm`, `tlm` and `translation`, the tokens of the batch that are to be predicted, ().
        keys: (pairs, hidden), the momentum encoder's.
        queued: those of earlier batches.
        teacher: (pairs, hidden), its vectors of the first sentences.
    """
    losses: dict[str, Tensor] = {}
    for name in ("mmlm", "tlm", "translation"):
        if name in embeddings:
            losses[name] = mean_of_all_processes(embeddings[name].squeeze(1), num_predicted[name])
    if "words" in embeddings:  # both sentences of a pair add up, as in equation 2
        (name,) = WORD_OBJECTIVES & recipe.objectives.keys()
        losses[name] = 2 * embeddings["words"].mean()
    if "queries" in embeddings and keys is not None and queued is not None:
        other_keys = torch.cat([rows_of_other_processes(keys.float()), queued[0]])
        other_concepts = torch.cat([rows_of_other_processes(concepts), queued[1]])
        losses["xlco"] = cross_lingual_contrast(
            embeddings["queries"].float(),
            keys.float(),
            other_keys,
            concepts=concepts,
            other_concepts=other_concepts,
            temperature=recipe.temperature,
        ).mean()
    if "sentences" in embeddings:
        first, second = embeddings["sentences"].float().chunk(2)
        others = [rows_of_other_processes(side) for side in (first, second)]
        if "align" in recipe.objectives:
            losses["align"] = alignment(first, second, *others).mean()
        if "similarity" in recipe.objectives:
            losses["similarity"] = similarity_alignment(first, second, *others).mean()
        for name, constraint in (("distance", constrained_distance), ("squared_distance", squared_distance)):
            if name not in recipe.objectives:
                continue
            others_of = [rows_of_other_processes(rows) for rows in (concepts, *languages)]
            both_ways = [
                constraint(
                    (first, second)[side],
                    (second, first)[side],
                    others[1 - side],
                    concepts=torch.cat([concepts, others_of[0]]),
                    languages=torch.cat([languages[1 - side], others_of[2 - side]]),
                    recipe=recipe,
                )
                for side in (0, 1)
            ]
            losses[name] = torch.stack(both_ways).mean()
        if "distillation" in recipe.objectives and teacher is not None:
            losses["distillation"] = distillation(first, second, teacher.float()).mean()
    return {f"{name}_loss": recipe.objectives[name] * loss for name, loss in losses.items()}
