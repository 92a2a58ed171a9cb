"""The only place that knows the batch axis: how lanes are laid out, and how gradients are summed.

A lane is one stream with its own state, trace and noise. Everything else in the library is written
for one lane; here it is run for many, as one of

- `Vmap()`: all lanes at once, batched products;
- `Loop()`: one lane after another;
- `Shard(devices, inner)`: lanes split over devices, each with an inner layout. The devices may be
  those of many processes (`processes.py`): each then holds and computes its own lanes only, and
  the sum of gradients is all that passes between them.

Work on a memory that is large goes `lane_by_lane`, in every layout, so that it stays in the cache.
"""

from kronline.lanes.layout import Layout, Loop, Shard, Vmap, best, many_processes, placed
from kronline.lanes.over import adding, over_lanes
from kronline.lanes.rules import added, lane_by_lane, largest

__all__ = [
    "Layout",
    "Loop",
    "Shard",
    "Vmap",
    "added",
    "adding",
    "best",
    "lane_by_lane",
    "largest",
    "many_processes",
    "over_lanes",
    "placed",
]
