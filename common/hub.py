"""Folders to the Hub."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import HfApi


def upload_folder(folder: str | Path, repo_id: str, repo_type: str = "model") -> None:
    """Upload a finished folder, its card included, in one commit. The repository is made if it does not exist."""
    api = HfApi()
    api.create_repo(repo_id, repo_type=repo_type, exist_ok=True)
    api.upload_folder(folder_path=folder, repo_id=repo_id, repo_type=repo_type)
