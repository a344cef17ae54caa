"""A small slice of the campaign of attacks; `make attack` runs more of it."""

from __future__ import annotations

import pytest

from tests.attack import __main__ as campaign
from tests.attack.__main__ import AREAS, AttackOptions, attack


@pytest.mark.parametrize("area", [area for area in AREAS if "ONNX" not in area])  # an export takes ten seconds
def test_the_first_attacks_of_each_area_are_withstood(area, capsys):
    (tally,) = attack(AttackOptions(areas=[area], attacks=1 if "texts" not in area else 3)).values()
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
        attack(AttackOptions(areas=["weather"]))
