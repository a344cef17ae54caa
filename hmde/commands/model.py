"""`hmde model FOLDER`: the released model as a folder, for `AutoModel` and for all that reads folders of models."""

from __future__ import annotations

from hmde.commands.options import ModelOptions
from hmde.common.files import check_is_new
from hmde.release.released import put_released_model_together


def main(options: ModelOptions) -> None:
    check_is_new(options.folder)
    put_released_model_together(options.folder)
    print(f"wrote {options.folder}")
