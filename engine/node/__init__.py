"""A node: one station with its worker, its executor, its models and its devices.

- `node.py`: a station with its connections. `real.py`, `router.py`: its kinds.
- `worker.py`: a station in real time. `executors.py`: steps on models, and drafts as tensors.
- `batch.py`, `colocated.py`: runs in one process.
- `build.py`, `prompts.py`: models, prompts.
- `capacity.py`: what the models of this host allow.
- `pending.py`: drafts that are not verified yet. `write_ahead_log.py`: rows that outlive a killed process.
- `device_lock.py`, `power.py`: locks of shared devices; power and energy.
- `observer.py`: reports the new rows of a process, and samples its device.
"""
