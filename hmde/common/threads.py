"""Import this before torch: threads that wait for work soon sleep, and memory does not grow with every new length of a
text, unless the environment says otherwise.

OpenMP's threads spin for milliseconds after each operation, so that they begin the next one a little earlier. If other
programs need the cores too, each operation waits for threads that do not run, while those that run spin: encoding can
take many times as long. Threads that never spin are woken for each operation, which slows encoding on idle cores. So
they spin for a fraction of a millisecond. OpenMP reads the policy once, when torch is loaded.

oneDNN, which multiplies matrices of bfloat16, keeps what it has compiled for the last 1,024 shapes. Each number of
tokens is a shape of its own, so they seldom come again, and take half a gigabyte and more. docs/journal has the
numbers.
"""

import os

# How often a thread of GNU's OpenMP looks for work before it sleeps. Other OpenMPs let it sleep at once.
SPIN_COUNT = "10000"

# Shapes that oneDNN remembers: more than the layers of an encoder have for texts of one length.
SHAPES = "64"

os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", SHAPES)
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)  # stands above the policy
