"""Throughput of one drafter against the number of its targets, at two depths: simulation beside the equations."""

import specfleet

counts_and_depths = {"verifiers.count": [1, 2, 4, 8], "drafters.depth": [3, 6]}
swept = specfleet.sweep("star", counts_and_depths, workload={"requests": 40}, seeds=2, jobs=1)
columns = [
    "drafters.depth",
    "verifiers.count",
    "throughput",
    "throughput_low",
    "throughput_high",
    "analytic_throughput",
]
print(swept.frame()[columns].to_string(index=False))
swept.figure(out="runs/throughput.png")
