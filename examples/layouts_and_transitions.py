"""How a card may be cut, and how one cut becomes another while jobs run on it."""

from smartmig.hardware.layouts import configurations, layout_text, solve_cut
from smartmig.hardware.model import gpu_model
from smartmig.hardware.transitions import fragmentation, least_disruption, where_to_create
from smartmig.types import Layout

a100 = gpu_model("a100-40gb")


def show(layout: Layout) -> str:
    return ", ".join(f"{profile} at {start}" for start, profile in layout) or "nothing"


# A configuration is a cut that is not part of a larger one. The numbers are those of `--layouts`.
print(f"{a100.title}: {a100.n_compute} compute slices, {a100.n_memory} memory slices")
for number, layout in enumerate(configurations(a100), start=1):
    print(f"{number:4d}  {layout_text(a100, layout)}")
print()

# A cut is written from large to small; where each instance may start is the card's rule, not ours to choose.
current = solve_cut(a100, ["3g", "2g", "1g", "1g"])
print(f"now:     {show(current)}")

# A job runs on the 2g. We want two 3g: the busy instance must stay, so there is no way.
busy = [placement for placement in current if placement.profile == "2g.10gb"]
print(f"busy:    {show(tuple(busy))}")
print(f"3g+3g:   {least_disruption(a100, current, busy, ['3g', '3g'])}")

# Another 2g is possible. What is idle and not in the way stays too.
change = least_disruption(a100, current, busy, ["3g", "2g", "2g"])
assert change is not None
print("3g+2g+2g:")
for step in change.steps:
    print(f"         {step.action} {step.placement.profile} at {step.placement.start}")
print(f"then:    {show(change.target)}")
print()

# On an empty card the first 1g goes to the right end. At 0 it would have blocked the 4g that comes next.
layout: Layout = ()
for profile in ("1g", "4g", "2g", "2g"):
    place = where_to_create(a100, layout, profile)
    if place is None:
        print(f"{profile}: no room")
        continue
    layout = tuple(sorted((*layout, place)))
    print(f"{profile} at {place.start}: fragmentation {fragmentation(a100, layout):.2f}")
print(f"cut:     {layout_text(a100, layout)}")
