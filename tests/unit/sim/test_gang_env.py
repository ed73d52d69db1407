"""`GangSchedule-v0`: PettingZoo's own test, rewards that add up, masks, and what the agents may know."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("pettingzoo", reason="pip install 'smartmig[gym]'")

from pettingzoo.test import parallel_api_test

from smartmig.errors import InputError
from smartmig.sim.gang.env import ALLOCATOR, PASS, SELECTOR, WAIT, GangSchedule
from smartmig.types import GangJobs


def jobs(seed: int) -> GangJobs:
    rng = np.random.default_rng(seed)
    n = 60
    empty = np.full(n, "")
    run_s = rng.uniform(5, 4000, n)
    return GangJobs(
        np.arange(n).astype(str), np.cumsum(rng.exponential(300, n)), run_s, run_s * 3, rng.choice([1, 2, 4, 8, 10], n),
        empty, empty, empty, np.full(n, np.nan), 0.0,
    )  # fmt: skip


def test_env__passes_pettingzoos_test(capsys: pytest.CaptureFixture[str]) -> None:
    parallel_api_test(GangSchedule(jobs, "2x8"), num_cycles=300)
    assert "Passed" in capsys.readouterr().out


def test_env__rewards_add_up_and_turns_alternate() -> None:
    env = GangSchedule(jobs, "2x8")
    seen, infos = env.reset(seed=3, options={"jobs": 5})
    rng = np.random.default_rng(0)
    total, turns = 0.0, set()
    while env.agents:
        turn = infos[SELECTOR]["turn"]
        turns.add(turn)
        masks = {agent: one["action_mask"] for agent, one in seen.items()}
        assert masks[ALLOCATOR][PASS] == (not masks[ALLOCATOR][:PASS].any())
        assert turn == ALLOCATOR or masks[ALLOCATOR][PASS]  # a job of several nodes has no kind to choose
        if turn == ALLOCATOR:
            assert masks[SELECTOR].tolist() == [0] * WAIT + [1]
        actions = {agent: int(rng.choice(np.flatnonzero(mask))) for agent, mask in masks.items()}
        seen, rewards, _, _, infos = env.step(actions)
        assert rewards[SELECTOR] == rewards[ALLOCATOR] <= 0
        total += rewards[SELECTOR]
    assert turns == {SELECTOR, ALLOCATOR}
    assert 1 - total == pytest.approx(infos[SELECTOR]["mean_bounded_slowdown"])


def test_env__refuses_a_closed_action_and_a_step_after_the_end() -> None:
    env = GangSchedule(jobs, "2x8", max_steps=2)
    seen, _ = env.reset(seed=0)
    closed = int(np.flatnonzero(seen[SELECTOR]["action_mask"] == 0)[0])
    with pytest.raises(InputError, match=f"selector: action {closed} is not open now"):
        env.step({SELECTOR: closed, ALLOCATOR: PASS})
    for _ in range(2):
        seen, _, _, cut, _ = env.step({agent: int(np.argmax(one["action_mask"])) for agent, one in seen.items()})
    assert cut == {SELECTOR: True, ALLOCATOR: True}
    with pytest.raises(InputError, match="call reset"):
        env.step({SELECTOR: WAIT, ALLOCATOR: PASS})


def test_env__the_same_seed_gives_the_same_episode() -> None:
    def play() -> list[float]:
        env = GangSchedule(jobs, "2x8", max_steps=60)
        seen, _ = env.reset(seed=11)
        rewards = []
        while env.agents:
            actions = {agent: int(np.argmax(one["action_mask"])) for agent, one in seen.items()}
            seen, reward, _, _, _ = env.step(actions)
            rewards.append(reward[SELECTOR])
        return rewards

    assert play() == play()
