"""The two agents with draws in place of the best choice, and a tape of what they saw and drew: for training.

A tape is one vector of numbers behind the agent's knobs: how many records it has, the seed, the draws so far, the share
of decisions kept, from when on, how freely to draw, then the records. Only the tape differs from what decides in use:
scores come from the same code.
"""

from __future__ import annotations

import math

from smartmig.jit import called_kernel, kernel
from smartmig.policy.allocation.learned import AT_CHOSEN, AT_NODE, AT_NUMBERS, LEAST_LOSS, N_KINDS, score_kinds
from smartmig.policy.allocation.learned import AT_LOSS as AT_KIND_LOSS
from smartmig.policy.allocation.learned import AT_NETWORK as AT_ALLOCATOR
from smartmig.policy.allocation.learned import AT_SCORES as AT_KIND_SCORES
from smartmig.policy.allocation.learned import AT_SEEN as AT_KIND_SEEN
from smartmig.policy.allocation.learned import ROOM as ALLOCATOR_ROOM
from smartmig.policy.draw import draw_share
from smartmig.policy.gang_encoding import AT_JOBS, AT_OLDEST, AT_SLOTS, N_CLUSTER, N_SLOT, N_SLOTS, encode
from smartmig.policy.gang_network import AT_FIT, N_ALLOCATOR, N_KIND, N_SELECTOR, ROOM
from smartmig.policy.gang_view import JobArrays, State, World
from smartmig.policy.selection.learned import AT_ADDS as AT_SLOT_ADDS
from smartmig.policy.selection.learned import AT_NETWORK, AT_SCORES, AT_SEEN, CLOSED, overdue, score_slots
from smartmig.types import Floats

# A tape.
N_RECORDS, SEED, DRAWS, KEPT_SHARE, FROM_S, TEMPERATURE = range(6)
TAPE_HEAD = 6

MAX_SLOTS, MAX_KINDS = 28, 10
"""decisions with more options are not kept"""

# A record: when, which option was drawn, how many there were, its log-probability, the cluster, then every option: the
# rule's score and its numbers. The selector's last option is to wait, and has no numbers.
RECORD_HEAD = 4
SLOT_WIDTH, KIND_WIDTH = 1 + N_SLOT, 1 + N_KIND
SLOT_RECORD = RECORD_HEAD + N_CLUSTER + MAX_SLOTS * SLOT_WIDTH
KIND_RECORD = RECORD_HEAD + N_CLUSTER + MAX_KINDS * KIND_WIDTH

AT_SLOT_TAPE = AT_NETWORK + N_SELECTOR + ROOM
AT_KIND_TAPE = AT_ALLOCATOR + N_ALLOCATOR + ALLOCATOR_ROOM


@called_kernel
def draw_from(scores: Floats, n: int, tape: Floats) -> tuple[int, float]:
    """One of `n` options by the softmax of their scores (CLOSED ones never), and its log-probability."""
    cold = tape[TEMPERATURE]
    largest = scores[0]
    for at in range(n):
        largest = max(largest, scores[at])
    total = 0.0
    for at in range(n):
        total += math.exp((scores[at] - largest) / cold)
    left = draw_share(int(tape[SEED]), int(tape[DRAWS])) * total
    tape[DRAWS] += 1.0
    chosen = -1
    for at in range(n):
        if scores[at] > CLOSED:
            chosen = at
            left -= math.exp((scores[at] - largest) / cold)
            if left < 0.0:
                break
    return chosen, (scores[chosen] - largest) / cold - math.log(total)


@kernel
def keeps(tape: Floats, now_s: float, room: int) -> bool:
    """Whether this decision goes on the tape."""
    if now_s < tape[FROM_S] or room <= 0:
        return False
    tape[DRAWS] += 1.0
    return draw_share(int(tape[SEED]), int(tape[DRAWS])) < tape[KEPT_SHARE]


@kernel
def explore_select(world: World, jobs: JobArrays, state: State) -> int:
    """`learned.select`, drawing."""
    knobs = world.selection_knobs
    seen = knobs[AT_SEEN:AT_SCORES]
    scores = knobs[AT_SCORES:AT_NETWORK]
    encode(world, jobs, state, seen)
    oldest = int(seen[AT_OLDEST])
    if overdue(world, jobs, state, oldest):
        return oldest
    score_slots(world, jobs, state, seen, scores, knobs[AT_NETWORK:AT_SLOT_TAPE])
    n_open = 0
    for slot in range(N_SLOTS):
        n_open += scores[slot] > CLOSED
    if n_open == 0:
        return -1
    tape = knobs[AT_SLOT_TAPE:]
    chosen, log_p = draw_from(scores, N_SLOTS + 1, tape)
    n_records = int(tape[N_RECORDS])
    begin = TAPE_HEAD + n_records * SLOT_RECORD
    now_s = state.now[0].time_s
    can_wait = scores[N_SLOTS] > CLOSED
    if can_wait and n_open < MAX_SLOTS and keeps(tape, now_s, tape.size - begin - SLOT_RECORD):
        tape[N_RECORDS] += 1.0
        tape[begin] = now_s
        tape[begin + 2] = n_open + 1
        tape[begin + 3] = log_p
        for at in range(N_CLUSTER):
            tape[begin + RECORD_HEAD + at] = seen[at]
        option = 0
        if knobs[AT_SLOT_ADDS] > 0.0:
            # The tape holds what the rule thinks without the network: score the slots once more.
            knobs[AT_SLOT_ADDS] = 0.0
            score_slots(world, jobs, state, seen, scores, knobs[AT_NETWORK:AT_SLOT_TAPE])
            knobs[AT_SLOT_ADDS] = 1.0
        for slot in range(N_SLOTS + 1):
            if slot < N_SLOTS and scores[slot] == CLOSED:
                continue
            at = begin + RECORD_HEAD + N_CLUSTER + option * SLOT_WIDTH
            tape[at] = scores[slot]
            for number in range(N_SLOT):
                tape[at + 1 + number] = seen[AT_SLOTS + slot * N_SLOT + number] if slot < N_SLOTS else 0.0
            if slot == chosen:
                tape[begin + 1] = option
            option += 1
    return int(seen[AT_JOBS + chosen]) if chosen < N_SLOTS else -1


@kernel
def explore_prepare(world: World, jobs: JobArrays, state: State, job: int) -> None:
    """`learned.prepare`, drawing."""
    knobs = world.allocation_knobs
    score_kinds(world, jobs, state, job)
    n_open = 0
    for kind in range(N_KINDS):
        n_open += knobs[AT_KIND_SCORES + kind] > CLOSED
    knobs[AT_CHOSEN] = -1.0
    if n_open == 0:
        return
    tape = knobs[AT_KIND_TAPE:]
    chosen, log_p = draw_from(knobs[AT_KIND_SCORES:AT_ALLOCATOR], N_KINDS, tape)
    knobs[AT_CHOSEN] = knobs[AT_NODE + chosen]
    begin = TAPE_HEAD + int(tape[N_RECORDS]) * KIND_RECORD
    now_s = state.now[0].time_s
    if 1 < n_open <= MAX_KINDS and keeps(tape, now_s, tape.size - begin - KIND_RECORD):
        tape[N_RECORDS] += 1.0
        tape[begin] = now_s
        tape[begin + 2] = n_open
        tape[begin + 3] = log_p
        for at in range(N_CLUSTER):
            tape[begin + RECORD_HEAD + at] = knobs[AT_KIND_SEEN + at]
        least = -1.0
        for kind in range(N_KINDS):
            if knobs[AT_NODE + kind] >= 0.0 and (least < 0.0 or knobs[AT_KIND_LOSS + kind] < least):
                least = knobs[AT_KIND_LOSS + kind]
        option = 0
        for kind in range(N_KINDS):
            if knobs[AT_NODE + kind] < 0.0:
                continue
            at = begin + RECORD_HEAD + N_CLUSTER + option * KIND_WIDTH
            ratio = (knobs[AT_KIND_LOSS + kind] + LEAST_LOSS) / (least + LEAST_LOSS)
            tape[at] = -knobs[AT_ALLOCATOR + AT_FIT] * math.log(ratio)
            for number in range(N_KIND):
                tape[at + 1 + number] = knobs[AT_NUMBERS + kind * N_KIND + number]
            if kind == chosen:
                tape[begin + 1] = option
            option += 1
