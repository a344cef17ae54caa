"""The comparison of threads that sleep and spin. Its times are not tested."""

from __future__ import annotations

from pathlib import Path

from benchmarks.threads import ThreadsBenchmark, busy_programs, trial


def test_a_trial_encodes_documents_and_questions(model_folder: Path, tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("The cat sat on the mat.")
    measured = trial(ThreadsBenchmark(str(model_folder), str(tmp_path), num_documents=1, num_questions=2))
    assert measured.documents > 0
    assert measured.question > 0


def test_busy_programs_end_with_the_block() -> None:
    with busy_programs(2) as programs:
        assert [program.poll() for program in programs] == [None, None]
    assert None not in [program.returncode for program in programs]
