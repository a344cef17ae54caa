import hmde.common.threads

from hmde.common.command_line import run
from training.corpus.build import main

run(main)
