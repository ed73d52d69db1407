"""S1's environment rebuilt from its description, to measure against: NumPy, one step per placing, one day at a time."""

from __future__ import annotations

import numpy as np

from smartmig.types import SLICE_SIZES, Floats, Jobs

EDGES_MIN = np.array([-np.inf, 0.0, 0.05, 0.2, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, np.inf])
S1_WATTS = np.array([40.0, 120.0, 160.0, 200.0, 240.0, 250.0, 250.0, 250.0])


class NumpyPlacing:
    """Jobs by deadline onto free slices; observation, mask and reward worked out anew at every step."""

    def __init__(self, layouts: list[list[int]]) -> None:
        self.size = np.array([size for layout in layouts for size in layout])
        self.gpu = np.array([gpu for gpu, layout in enumerate(layouts) for _ in layout])
        self.n_gpus = len(layouts)
        self.column = np.array([SLICE_SIZES.index(size) for size in self.size])

    def reset(self, jobs: Jobs) -> Floats:
        self.arrive = jobs.arrive_s / 60.0
        self.deadline = jobs.deadline_s / 60.0
        self.run = jobs.run_s / 60.0
        self.means = np.stack([self.run[:, 0], self.run[:, 1:3].mean(axis=1), self.run[:, 3:].mean(axis=1)], axis=1)
        self.end = np.full(self.size.size, np.inf)
        self.on = np.full(self.size.size, -1)
        self.queue: list[int] = []
        self.now, self.next_job, self.energy, self.late, self.n_late, self.n_done = 0.0, 0, 0.0, 0.0, 0, 0
        self._advance()
        return self._observe()

    def _watts(self) -> float:
        busy = np.bincount(self.gpu, weights=self.size * (self.on >= 0), minlength=self.n_gpus).astype(int)
        return float(S1_WATTS[busy].sum())

    def _advance(self) -> None:
        """To the next moment with a waiting job and a free slice, or to the end."""
        while not (self.queue and (self.on < 0).any()):
            arrival = self.arrive[self.next_job] if self.next_job < self.arrive.size else np.inf
            then = min(arrival, self.end.min())
            if then == np.inf:
                return
            self.energy += self._watts() * (then - self.now)
            self.now = then
            for at in np.flatnonzero(self.end <= then):
                late = max(0.0, then - self.deadline[self.on[at]])
                self.late += late
                self.n_late += late > 1e-9
                self.n_done += 1
                self.end[at], self.on[at] = np.inf, -1
            while self.next_job < self.arrive.size and self.arrive[self.next_job] <= then:
                self.queue.append(self.next_job)
                self.next_job += 1
        self.queue.sort(key=lambda job: (self.deadline[job], job))

    def action_masks(self) -> np.ndarray:
        return self.on < 0

    def _observe(self) -> Floats:
        if not self.queue:
            return np.zeros(5 + 40 + 2 * self.size.size + 3, dtype=np.float32)
        job = self.queue[0]
        left = self.deadline[job] - self.now
        waiting = np.array(self.queue)
        histograms = [np.histogram(self.deadline[waiting] - self.now, EDGES_MIN)[0]]
        histograms += [np.histogram(self.means[waiting, column], EDGES_MIN)[0] for column in range(3)]
        free = self.on < 0
        urgency = 10.0 if left <= 0 else min(10.0, self.run[job, 4] / left)
        return np.concatenate(
            [
                [left],
                self.means[job],
                [urgency],
                np.concatenate(histograms) / waiting.size,
                (~free).astype(float),
                self.size / 7.0,
                [waiting.size, free.mean(), self.size[free].max() / 7.0],
            ]
        ).astype(np.float32)

    def step(self, action: int) -> tuple[Floats, float, bool]:
        job = self.queue.pop(0)
        run = self.run[job, self.column[action]]
        self.on[action], self.end[action] = job, self.now + run
        late = max(0.0, self.now + run - self.deadline[job])
        reward = 1.0 if late <= 0 else -min(1.0, late / (10.0 * self.run[job, 4]))
        self._advance()
        done = self.n_done == self.arrive.size
        return self._observe(), reward, done
