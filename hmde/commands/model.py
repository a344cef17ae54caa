"""`hmde model FOLDER`: the released model as a folder, for `AutoModel` and for all that reads folders of models."""

from __future__ import annotations

import shutil

from hmde.commands.options import ModelOptions
from hmde.common.files import check_is_new, folder_written_whole
from hmde.release.released import released_model


def main(options: ModelOptions) -> None:
    check_is_new(options.folder)
    with folder_written_whole(options.folder) as folder:
        shutil.copytree(released_model(), folder, dirs_exist_ok=True)
    print(f"wrote {options.folder}")
