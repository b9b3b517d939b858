"""The engine's clock: one for all processes of a host. Clocks of two hosts are never compared."""

import time

now_s = time.monotonic
