"""What a run writes, on the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import HfApi


def upload_folder(folder: str | Path, repo_id: str) -> None:
    """Upload the finished folder of a model in one commit. The repository is made if it does not exist."""
    api = HfApi()
    api.upload_folder(repo_id=api.create_repo(repo_id, exist_ok=True).repo_id, folder_path=folder)
