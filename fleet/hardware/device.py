"""Devices and engines as figures, each with its source: a data sheet, a measurement, a fit, or an assumption."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

LABELS = ("measured", "fitted", "stated", "assumed")  # prefixes of a figure's source

Precision = Literal["bf16", "fp16", "fp8", "int8", "fp4"]


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number and its source; the source begins with one of LABELS and a colon."""

    value: Annotated[float, Meta(ge=0, le=1e19)]
    source: str

    def __post_init__(self) -> None:
        if self.source.partition(":")[0] not in LABELS or not self.source.partition(":")[2].strip():
            raise ValueError(f"a source begins with {', '.join(LABELS)} and a colon, and says where from")


class Accelerator(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One accelerator; what a data sheet does not say is by default that of the H100, assumed.

    Keys:
        title: Name in words.
        memory_bytes: Memory that the driver offers.
        bandwidth_bytes_per_s: Bandwidth of the memory.
        compute (operations/s): Dense floating point operations per second, by precision.
        bandwidth_share (share): Share of the bandwidth that matrix products reach.
        compute_share (share): Share of the operations that matrix products reach.
        product_s: Minimum time of a matrix product.
        kernel_s: Minimum time of a smaller kernel.
        kernel_share (share): Share of the bandwidth that small kernels reach.
        sharpness: Exponent by which a roofline's two times become one.
        link_bytes_per_s: Bandwidth to the other devices of the host, each way.
        link_share (share): Share of that bandwidth that an all-reduce reaches.
        link_latency_s: Latency of an all-reduce.
        bridge_bytes_per_s: Bandwidth that more than two devices share, if they meet at one host bridge (PCIe).
        tables: Name among the systems of aiconfigurator-core; empty where none of its tables was tested.
        all_reduces: The same, for the all-reduces between measured operators.
    """

    title: str
    memory_bytes: Figure
    bandwidth_bytes_per_s: Figure
    compute: dict[Precision, Figure]
    bandwidth_share: Figure = Figure(0.903, "assumed: as the H100 SXM")
    compute_share: Figure = Figure(0.765, "assumed: as the H100 SXM")
    product_s: Figure = Figure(5.6e-6, "assumed: as the H100 SXM")
    kernel_s: Figure = Figure(1.8e-6, "assumed: as the H100 SXM")
    kernel_share: Figure = Figure(0.583, "assumed: as the H100 SXM")
    sharpness: Figure = Figure(1.5, "assumed: as the H100 SXM")
    link_bytes_per_s: Figure = Figure(32e9, "assumed: PCIe Gen4 x16")
    link_share: Figure = Figure(0.7, "assumed: as the H100 SXM")
    link_latency_s: Figure = Figure(25e-6, "assumed: as the H100 PCIe")
    bridge_bytes_per_s: Figure | None = None
    tables: str = ""
    all_reduces: str = ""

    def __post_init__(self) -> None:
        shares = (self.bandwidth_share, self.compute_share, self.kernel_share, self.link_share)
        peaks = (self.memory_bytes, self.bandwidth_bytes_per_s, self.link_bytes_per_s, *self.compute.values())
        peaks += (self.bridge_bytes_per_s,) if self.bridge_bytes_per_s else ()
        if self.compute.keys().isdisjoint(("bf16", "fp16")) or any(figure.value <= 0 for figure in (*shares, *peaks)):
            raise ValueError("a device needs compute of 16 bits (bf16 or fp16), and peaks and shares above 0")
        if any(figure.value > 1 for figure in shares) or self.sharpness.value < 1:
            raise ValueError("shares of peaks are 1 at most, and the sharpness 1 at least")
        if max(self.product_s.value, self.kernel_s.value, self.link_latency_s.value) > 1:
            raise ValueError("times of products, kernels and links are 1 s at most")

    def figures(self) -> dict[str, Figure]:
        """All figures by name; compute rates as compute.PRECISION."""
        named = {name: getattr(self, name) for name in self.__struct_fields__}
        flat = {name: figure for name, figure in named.items() if isinstance(figure, Figure)}
        return flat | {f"compute.{name}": figure for name, figure in self.compute.items()}


class HostOverhead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Host time of an engine.

    - `step_s`: of each step.
    - `layer_s`: to launch each layer; no pass is shorter.
    - `row_s`: of each row of a target's step: scheduling, sampling, detokenisation.
    - `draft_s`: of each draft on a target's device, beside its passes; left out, as of a step.
    - `pass_s`, `slowest_pass_s`: to launch a drafting pass; none is shorter. The median of the engine's measured
      versions, and that of the slowest one.
    - `request_s`: of each request outside its steps, in TTFT and latency: HTTP, tokenisation, the step under way when
      it comes, and the delay of asynchronous results.
    - `mixture_step_s`, `mixture_row_s`, `mixture_request_s`: `step_s`, `row_s`, `request_s` of mixtures of experts.
    - `mixture_layer_s`: of a layer with experts on several devices: small kernels, and devices that wait for others.
      `tabled_layer_s`: the same where the experts' times are measured.
    - `prefill_first`: whether its scheduler reads waiting prompts before requests decode.
    - `kernels`: its name in aiconfigurator-core.
    - `tabled_experts`: precisions of experts, with their names there, the first that a device has, whose tables were
      nearer to measured runs than rooflines.
    """

    title: str
    step_s: Figure
    layer_s: Figure
    row_s: Figure = Figure(0.0, "assumed: part of step_s")
    draft_s: Figure | None = None
    pass_s: Figure = Figure(0.0, "assumed: a draft is launched as a whole")
    slowest_pass_s: Figure = Figure(0.0, "assumed: a draft is launched as a whole")
    request_s: Figure = Figure(0.0, "assumed: none")
    mixture_step_s: Figure | None = None
    mixture_row_s: Figure | None = None
    mixture_request_s: Figure | None = None
    mixture_layer_s: Figure = Figure(0.0, "assumed: none")
    tabled_layer_s: Figure | None = None
    prefill_first: bool = False
    kernels: str = ""
    tabled_experts: dict[str, tuple[str, ...]] = {}

    def of_mixtures(self) -> "HostOverhead":
        """Return the same engine with its times of mixtures of experts."""
        row_s, request_s = self.mixture_row_s or self.row_s, self.mixture_request_s or self.request_s
        return msgspec.structs.replace(
            self, step_s=self.mixture_step_s or self.step_s, row_s=row_s, request_s=request_s
        )

    @property
    def spread(self) -> float:
        """Share by which the slowest version's drafting passes are longer; 0 where none is known."""
        return self.slowest_pass_s.value / self.pass_s.value - 1 if self.pass_s.value else 0.0

    def figures(self) -> dict[str, Figure]:
        """All figures by name."""
        named = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: figure for name, figure in named.items() if isinstance(figure, Figure)}
