"""A pretended host with one GPU of a stated size, which is full where a calibration's processes would fill it.

Where the GPU shares the host's memory, Linux kills the process that is one too many.

Weights and caches come from the shipped shapes of models, what else a process takes is stated here. Fleets are
simulated, so that a calibration ends with a whole profile.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from specfleet.calibration.loops import run_loops
from specfleet.calibration.measurements import Effort
from specfleet.calibration.run import bench_of, calibrate
from specfleet.calibration.stages import USUAL, Asked
from specfleet.engine.launch.processes import ENDED
from specfleet.fleet.acceptance.models import Recorded
from specfleet.fleet.data.shipped import shipped_models
from specfleet.fleet.errors import DeviceMemoryError, NodeKilledError
from specfleet.fleet.hardware.configs import shape_of_config
from specfleet.fleet.hardware.shape import ModelShape
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.profile import STEPS, HardwareProfile
from specfleet.fleet.times.step_time import Quantiles, StepTime
from specfleet.sim.run import simulate

GB = 10**9
OTHER_BYTES = 1_300_000_000  # of each process: CUDA context, workspaces and graphs
NUMBER_BYTES = 2
ACCEPTED = [[5, 3, 0, 4, 5, 2, 1, 5], [2, 5, 5, 0, 3, 4, 1, 2]]
VICUNA_68M = {  # stated: config.json of double7/vicuna-68m at Hugging Face
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 768, "num_attention_heads": 12,
    "intermediate_size": 3072, "vocab_size": 32000,
}  # fmt: skip
SHAPES = {**shipped_models(), "vicuna-68m": VICUNA_68M}
PAIRS: dict[str, tuple[str, str, str, str]] = {  # target, drafter, its kind, precision
    "Vicuna-7B, 68M": ("llama-2-7b", "vicuna-68m", "model", "float16"),
    "Vicuna-7B, EAGLE": ("llama-2-7b", "eagle-llama-2-7b", "eagle", "float16"),
    "Llama-3.1-8B, 3.2-1B": ("llama-3.1-8b", "llama-3.2-1b", "model", "bfloat16"),
}
SMALLEST, LARGEST = "Qwen3-1.7B, 0.6B", "Qwen3-14B, 0.6B"
ALL_PAIRS = PAIRS | {
    SMALLEST: ("qwen3-1.7b", "qwen3-0.6b", "model", "bfloat16"),
    LARGEST: ("qwen3-14b", "qwen3-0.6b", "model", "bfloat16"),
}
SMALL = Effort(
    requests=4, recorded=6, prompts=4, gap_rounds=60, warm_tokens=(0,), warm_rounds=20, loads=(1,),
    saturated_rounds=60, loaded_rounds=60, payloads_bytes=(64, 4096), pings=3, sharing_requests=2,
)  # fmt: skip
TIMES = {
    "draft": StepTime(0.002, 0.001, 0.0, 1e-6),
    "verify": StepTime(0.006, 0.001, 1e-5),
    "decode": StepTime(0.006, 0.0, 1e-5),
    "draft_prefill": StepTime(0.001, 1e-5),
    "verify_prefill": StepTime(0.005, 1e-4),
}
PROFILE = HardwareProfile(
    "truth", **TIMES, contention=(1.0, 1.3, 1.7, 2.0), acceptance=Recorded(5, tuple(map(tuple, ACCEPTED)))
)


def shape(name: str) -> ModelShape:
    """The shape of a shipped model, or of the small one above."""
    return shape_of_config(name, SHAPES[name], name)


def write_sizes(folder: Path, name: str) -> Path:
    """Write the folder of a model: its config.json, and a checkpoint that has the sizes of tensors and no content."""
    folder = folder / name
    folder.mkdir(exist_ok=True)
    numbers = shape(name).parameters()
    content = {key: value for key, value in SHAPES[name].items() if key not in ("source", "parameters")}
    eagle = content["model_type"] == "eagle"
    content |= {"model_type": "llama"} if eagle else {}
    (folder / "config.json").write_bytes(msgspec.json.encode(content))
    tensors = {"all": {"dtype": "F16", "shape": [numbers], "data_offsets": [0, 2 * numbers]}}
    header = msgspec.json.encode(tensors)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + 2 * numbers)  # a hole takes no space
    return folder


def scenario_of(pair: str, folder: Path) -> Scenario:
    """The scenario of a pair, with folders of its models."""
    target, drafter, kind, precision = ALL_PAIRS[pair]
    return make_scenario(
        {
            "name": pair, "precision": precision,
            "drafters": {"kind": kind, "model": str(write_sizes(folder, drafter))},
            "verifiers": {"model": str(write_sizes(folder, target))},
            "workload": {"prompt_tokens": 128, "new_tokens": 96},
        }
    )  # fmt: skip


class PretendedHost:
    """The GPU of `size_bytes`, and the calls of a calibration that use it.

    - `peak_bytes`: the largest sum so far. `stages`: names of those that were measured, `lines`: what was said.
    - `fails`: the work that fails once, by a part of its name, or of its stage's. `rough`: stages of steps in a host's
      slow phases. `shared`: whether the GPU has the memory of the host.
    """

    def __init__(self, size_bytes: float, pair: str, shared: bool = False) -> None:
        self.size_bytes, self.used_bytes, self.peak_bytes = int(size_bytes), 0, 0
        self.target, self.drafter = (shape(name) for name in ALL_PAIRS[pair][:2])
        self.borrows, self.shared, self.rough = ALL_PAIRS[pair][2] == "eagle", shared, set[str]()
        self.gpu, self.fails = "NVIDIA Pretended", ""
        self.measured, self.reported, self.lines = list[str](), list[str](), list[str]()
        self.loops, self.profile = list[Scenario](), PROFILE

    def calibrate(
        self, scenario: Scenario, folder: Path, effort: Effort = SMALL, asked: Asked = USUAL
    ) -> HardwareProfile:
        signals, says = folder.parent / "signals.parquet", (self.reported.append, self.lines.append)
        return calibrate(scenario, bench_of(scenario, folder, effort, *says, asked=asked, keep=True), signals)

    def replace_engine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let calibrations run here instead of on the engine."""
        monkeypatch.setattr("specfleet.calibration.run.in_process", self.in_process)
        monkeypatch.setattr("specfleet.calibration.run.serve", self.serve)
        monkeypatch.setattr("specfleet.calibration.run.measure_round_trips", self.round_trips)

    @contextmanager
    def processes(self, name: str, held_bytes: Sequence[int]) -> Iterator[None]:
        """Hold what processes allocate until they end; DeviceMemoryError beyond the size of the GPU."""
        if self.fails and any(self.fails in doing for doing in (name, *self.reported[-1:])):
            self.fails = ""
            raise RuntimeError(f"{name} fails once")
        before = self.used_bytes
        for one_bytes in held_bytes:
            self.used_bytes += one_bytes + OTHER_BYTES
        if self.used_bytes > self.size_bytes:
            self.used_bytes = before
            if self.shared:
                raise NodeKilledError(f"{name} was killed by SIGKILL; {ENDED}")
            raise DeviceMemoryError(f"{name}: its device is out of memory")
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        yield
        self.used_bytes = before
        self.measured.append(name)

    def weights_bytes(self, *models: ModelShape) -> int:
        return NUMBER_BYTES * sum(model.parameters() for model in models)

    def cache_bytes(self, tokens: int, *models: ModelShape) -> int:
        return tokens * sum(model.cache_bytes_per_token(NUMBER_BYTES) for model in models)

    def drafting_bytes(self, tokens: int) -> int:
        """Bytes of a drafter's process: an EAGLE head loads its target beside it."""
        models = (self.drafter, self.target) if self.borrows else (self.drafter,)
        return self.weights_bytes(*models) + self.cache_bytes(tokens, self.drafter)

    def in_process(self, name: str, work: Callable[..., Any], *arguments: Any) -> Any:
        """What a process measures: facts of the host, or loops, whose target it holds."""
        if not arguments:
            return {"machine": "pretended", "gpu": self.gpu}
        assert work is run_loops
        loops, held_bytes = arguments[0], 0
        for fleet in map(resolve, loops):
            models = [self.target, *([self.drafter] if fleet.verifiers.drafts else [])]
            cache_bytes = self.cache_bytes(fleet.streams * fleet.lengths.longest_text, *models)
            held_bytes = max(held_bytes, self.weights_bytes(*models) + cache_bytes)
        with self.processes(name, [held_bytes]):
            self.loops += loops
            rough = self.reported[-1].partition(":")[0] in self.rough
            return [(self.loop(loop, rough), {}) for loop in loops]

    def loop(self, loop: Scenario, rough: bool) -> Run:
        """A run of a loop. `rough`: whether a host takes up to a hundred times as long for any step, or as short."""
        spread = {"spread": Quantiles((0.0, 0.25, 0.5, 0.75, 1.0), (0.01, 0.1, 1.0, 10.0, 100.0))} if rough else {}
        times = {name: msgspec.structs.replace(getattr(self.profile, name), **spread) for name in STEPS}
        return simulate(msgspec.structs.replace(loop, profile=msgspec.structs.replace(self.profile, **times)))

    def serve(self, scenario: Scenario, _folder: Path) -> SimpleNamespace:
        """A run of a small fleet: simulated, while its processes hold their models."""
        fleet = resolve(scenario)
        row = fleet.workload.prompt_tokens + fleet.workload.new_tokens
        held_bytes = [self.drafting_bytes(fleet.verifiers.count * row)] * fleet.drafters.stations
        if fleet.verifiers.kind == "real":
            models = [self.target, *([self.drafter] if fleet.verifiers.drafts else [])]
            held_bytes += [self.weights_bytes(*models) + self.cache_bytes(row, *models)] * fleet.verifiers.count
        with self.processes(scenario.name, held_bytes):
            return SimpleNamespace(run=simulate(msgspec.structs.replace(scenario, profile=PROFILE)))

    def round_trips(self, sizes_bytes: Sequence[int], repeats: int) -> list[list[float]]:
        with self.processes("links", [self.drafting_bytes(1)]):
            return [[0.001 + size * 1e-9] * repeats for size in sizes_bytes]
