"""A small slice of the campaign of attacks; `make attack` runs more of it."""

from __future__ import annotations

import os
import signal

import pytest
from tqdm import tqdm

from tests.attack import __main__ as campaign
from tests.attack.__main__ import AttackOptions, Tally, attack
from tests.pretraining import in_processes

# The others take long, and tests beside the code that they attack do with less.
SHORT = [
    *("pretraining is killed", "evaluations share document vectors", "the corpus builder is killed"),
    *("strange files are read", "texts, sentence by sentence", "texts, passages and ModernBERT", "tokens of the Hub"),
    *("damaged models are loaded", "hostile tables are encoded", "all scripts, segmentation", "all scripts, time"),
]


@pytest.mark.parametrize("area", SHORT)
def test_the_first_attacks_of_an_area_are_withstood(area, capsys):
    quick = ("texts", "files", "models", "tables", "time")
    tallies: dict[str, Tally] = {}
    attack(AttackOptions(areas=[area], attacks=3 if any(word in area for word in quick) else 1), tallies)
    (tally,) = tallies.values()
    assert tally.attacks
    assert not tally.failures, capsys.readouterr().out


def test_a_failure_is_counted_and_printed_with_the_command_that_repeats_it(monkeypatch, capsys):
    def fail(random, folder):
        assert not any(folder.iterdir())
        raise AssertionError(f"drew {random.random()}")

    monkeypatch.setitem(campaign.AREAS, "weak spot", fail)
    with pytest.raises(SystemExit):
        campaign.main(["--areas", '["weak"]', "--first", "3", "--attacks", "2"])
    output = capsys.readouterr().out
    assert "drew 0." in output
    assert "repeat: python -m tests.attack --seed 0 --areas '[\"weak spot\"]' --first 4 --attacks 1" in output


def test_an_area_that_there_is_not_is_named():
    with pytest.raises(ValueError, match="there is no area 'weather'; choose among pretraining is killed"):
        attack(AttackOptions(areas=["weather"]), {})


def test_a_process_that_is_killed_while_it_draws_a_progress_bar_stops_no_other():
    def draw(rank: int) -> None:
        for _ in tqdm(range(2)):
            if rank == 0:
                with tqdm.get_lock():
                    os.kill(os.getpid(), signal.SIGKILL)

    list(tqdm(range(2)))  # from now on, forked processes would share a lock of tqdm's own
    assert in_processes(1, draw) == [-signal.SIGKILL]
    assert in_processes(2, lambda _: draw(rank=1)) == [0, 0]
