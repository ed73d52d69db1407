"""Which queued job is next.

A rule is one file: a frozen dataclass of knobs with an order of the queue: fixed (`keys`), moving (`key` and its plain
twin), or picked job by job (`select` and its plain twin), which is where a learned rule plugs in.
"""
