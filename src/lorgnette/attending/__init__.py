"""The attention function that models call, what can be seen of a call, and who may see or edit it.

`attend` is what models call. Whoever watches (`lorgnette.tapped`) is handed each call as a `Call`, which computes only
what is asked of it.

scores → what enters the softmax     sweep → exact statistics of rows without the matrix
call   → `Site`, `Call`              taps  → `Tap`, and the watches of this thread
attend → `attend`                    recorder → `Recorder`, which keeps what it is asked for
words  → attention between words     entropy → entropies with a gradient
"""

from lorgnette.attending.attend import attend
from lorgnette.attending.call import TEXT_STACKS, Call, Site
from lorgnette.attending.recorder import Recorder
from lorgnette.attending.taps import ACTIVE, Arrival, Tap, Watch

__all__ = ["ACTIVE", "TEXT_STACKS", "Arrival", "Call", "Recorder", "Site", "Tap", "Watch", "attend"]
