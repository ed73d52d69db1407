"""The live loop: observe -> state -> policy -> guard -> apply -> journal.

    decide.py    ClusterState -> Plan with the simulator's own rules; a pure function
    memory.py    what a policy remembers between two decisions
    guard.py     refuses plans that are not safe, and says why
    journal.py   what was seen, decided, done: append-only
    loop.py      turns the wheel, in mode observe, shadow or act
    effect.py    what another policy would have made of the same jobs

An adapter implements `ports.Source` and `ports.Actuator` and is registered in `registry.ADAPTERS`; the loop, the guard
and the journal know nothing else of a cluster. How the loop uses one:

- `take_over` once when mode `act` begins, `let_go` when it ends, when the kill file appears and on `smartmig kill`;
- `wait(period)` then `observe`, for ever; a start that was accepted and is not yet seen running is kept in mind by the
  loop for a while (`in_flight_s`), so an adapter may report the job as queued meanwhile;
- `apply` runs on a thread of its own, with one plan at a time.
"""
