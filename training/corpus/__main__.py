import common.terminal
import common.threads

from common.command_line import run
from training.corpus.build import main

run(main)
