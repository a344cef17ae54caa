"""Import this before torch: threads that wait for work sleep, unless the environment says otherwise.

OpenMP's threads spin for milliseconds after each operation, so that they begin the next one a little earlier. If other
programs need the cores too, each operation waits for threads that do not run, while those that run spin: encoding takes
many times as long. OpenMP reads the policy once, when torch is loaded. docs/speed.md has the numbers.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
