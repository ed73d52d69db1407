"""Training with somebody else's trainer: MaskablePPO of sb3-contrib learns where to place, with S1's exact settings.

Needs `pip install 'smartmig[gym,sb3]'`. S1's 500,000 placings take some minutes; an argument asks for fewer.
"""

import sys
from typing import Any

import gymnasium
import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from smartmig.sim.mig.placement_env import ENV_ID  # registers the environment
from smartmig.workload.seeds import VALIDATION_FIRST

N_STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
N_DAYS = 2 if N_STEPS < 500_000 else 20

# S1's world: eight A100s cut once, relaxed deadlines; a job that fits a free slice must be placed.
KNOBS: dict[str, Any] = {"layouts": "1,1,2,2,3,3,9,9", "observation": "s1", "reward": "s1", "wait": False}

torch.set_num_threads(1)
environment = gymnasium.make(ENV_ID, **KNOBS).unwrapped
print(f"observation: {environment.observation_space.shape[0]} numbers")
print(f"action: one of {environment.action_space.n - 1} slices, or to wait")


class LessEntropy(BaseCallback):
    """From .02 down to .001."""

    def _on_rollout_start(self) -> None:
        self.model.ent_coef = 0.02 + (0.001 - 0.02) * min(1.0, self.num_timesteps / N_STEPS)

    def _on_step(self) -> bool:
        return True


days = make_vec_env(lambda: gymnasium.make(ENV_ID, **KNOBS), n_envs=8, seed=0)
model = MaskablePPO(
    "MlpPolicy",
    days,
    n_steps=min(2048, max(2, N_STEPS // 8)),
    batch_size=4096,
    n_epochs=10,
    learning_rate=lambda left: 1e-5 + (3e-4 - 1e-5) * left,
    ent_coef=0.02,
    clip_range=0.15,
    policy_kwargs={"net_arch": [256, 256, 128]},
    seed=0,
    device="cpu",
)
model.learn(N_STEPS, callback=LessEntropy())

late, et = [], []
for day in range(VALIDATION_FIRST, VALIDATION_FIRST + N_DAYS):
    seen, info = environment.reset(options={"day": day})
    done = False
    while not done:
        mask = environment.action_masks()
        action, _ = model.predict(seen, action_masks=mask, deterministic=True)
        assert mask[action]
        seen, _, done, _, info = environment.step(action)
    late.append(info["late_frac"])
    et.append(info["et"])

# The numbers differ between machines, as torch's do.
print(f"days played to their end: {len(et)}")
if N_STEPS >= 500_000:
    print(f"late {100 * np.mean(late):.1f} %, ET {np.mean(et):.3f}")
