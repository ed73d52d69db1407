"""A simulated cluster's time."""

from __future__ import annotations

import time

from smartmig.adapters.simulated import Simulated


def test_simulated__time_stands_still_until_somebody_waits() -> None:
    source, _, clock = Simulated(gpus="1xa100-40gb", layouts="1", speedup=1e6).open()
    first = source.observe(1)
    time.sleep(0.01)  # nearly three simulated hours
    assert source.observe(1).time_s == clock.now_s() == first.time_s
    source.wait(60.0)
    assert source.observe(1).time_s > first.time_s
