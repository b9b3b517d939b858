"""Hardware profiles: the time of each step on a machine, as numbers with their spread and their provenance.

`calibrate/` writes profiles from measurements; shipped ones have numbers from stated sources. The simulator draws its
times from a profile, and the analytic model uses its means.
"""

import hashlib
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from specfleet.fleet.acceptance.models import AcceptanceModel
from specfleet.fleet.data.shipped import shipped_files
from specfleet.fleet.errors import InputError
from specfleet.fleet.files import write_json
from specfleet.fleet.inputs.format import FORMAT, Version, check_format
from specfleet.fleet.inputs.strict import convert
from specfleet.fleet.inputs.text import is_file, read_json, shortened
from specfleet.fleet.times.effects import IdleEffect, KvMemory, Power
from specfleet.fleet.times.overhead import Overheads
from specfleet.fleet.times.step_time import Factor, LinkTime, Seconds, StepTime

STEPS = ("draft", "verify", "decode", "draft_prefill", "verify_prefill")  # the step times of a profile, by name

POSITIONS = "positions of"  # in provenance, before role and name of a model: tokens of its longest text, 0 if unknown

Size = Annotated[int, Meta(ge=0, le=10**9)]


class Server(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The server that estimated times are of, as `specfleet import --target` writes it.

    Keys:
        target: Its model and devices, MODEL@DEVICE.
        draft: Its drafter; empty without one.
        engine: The shipped engine of its host times.
        model: Its model's name, as its records have it.
        slower (factor): Its times over their estimates, by step: how they meet a measured round.
        requests (number): Requests that its acceptance was counted in, as many as equally long ones; 0 if unknown.
    """

    target: str
    draft: str = ""
    engine: str = "graphs"
    model: str = ""
    slower: dict[str, Factor] = {}
    requests: Size = 0


class HardwareProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All numbers that the simulator needs about a machine and a model pair.

    A profile is a JSON file with these keys, or the same as a table `[profile]` of a scenario.

    Keys:
        name: Name of the profile in tables.
        draft: `S(d)`, time of a draft step by speculation length and context. A time alone leaves `idle` out.
        one_pass: Whether `draft` was measured of a drafter of blocks, all tokens of a draft in one pass. Left out, a
            draft is a pass for each token, and `drafters.kind = "block"` takes the time of one of them.
        slots_less (tokens): 1 where its row of a step has a slot less than its draft has tokens: P-EAGLE, DSpark.
        verify: `t_v`, time of a verification by tokens fed (draft tokens + 1) and context.
        decode: Time of one plain decoding step of the standalone target, by context.
        draft_prefill: Time of a drafter's prefill, by prompt tokens.
        verify_prefill: Time of a target's prefill, by prompt tokens.
        realign: Time of unpadding and padding a batch anew, its cache included, by rows and context.
        catch_up_s: Extra time of a draft after full acceptance, when the drafter feeds its own last token in a
            separate step.
        overhead: Delays around steps, by how stations share a device.
        link: The link between drafter and target, one way.
        idle: Slowdown of a drafter after an idle gap.
        contention (factor): `contention[k-1]` multiplies every step of a shared device while k stations are active on
            it.
        acceptance: Acceptance of draft tokens, unless the scenario sets it.
        vocabulary (tokens): Size of the vocabulary, which sizes the draft distributions on the wire.
        hidden (numbers): Length of the target's hidden states of one token, which EAGLE heads receive: for EAGLE-3 of
            three layers.
        request_s: Time of a request outside its target's steps: HTTP, tokenisation, the way of its first token. TTFT
            and latency contain it, and in a closed loop the next request comes so much later.
        kv: Memory of the KV cache of a target's device. Left out, it has no limit.
        positions (tokens): Number of learned positions of the models; a draft is shortened rather than exceed it. 0
            is no limit.
        power: Electrical power of a device. Left out, or unlike within a side, energy is not reported.
        inferred_at (tokens): Depth of the drafts and draft tokens of a row, where the step times were inferred from one
            load; a scenario with other drafts is refused.
        server: The server that the times are estimated of and fitted to, which a plan keeps.
        provenance: Where and how the numbers were measured: host, versions, models, prompts.
        sources: Source of each number, by its dotted name: a paper's table, or the word "assumed".
        measured: Raw quantiles, residuals and other data to judge the fits; `left_out` says what there is not, and why.
        version (number): Format of the file. A file of another format is refused.
    """

    name: str
    draft: StepTime
    verify: StepTime
    decode: StepTime = StepTime()
    draft_prefill: StepTime = StepTime()
    verify_prefill: StepTime = StepTime()
    realign: StepTime = StepTime()
    catch_up_s: Seconds = 0.0
    overhead: Overheads = Overheads()
    link: LinkTime = LinkTime()
    idle: IdleEffect = IdleEffect()
    contention: Annotated[tuple[Factor, ...], Meta(min_length=1)] = (1.0,)
    acceptance: AcceptanceModel | None = None
    vocabulary: Size = 0
    hidden: Size = 0
    request_s: Seconds = 0.0
    kv: KvMemory | None = None
    positions: Annotated[int, Meta(ge=0)] = 0
    power: Power | None = None
    inferred_at: tuple[Size, Size] | None = None
    provenance: dict[str, str] = {}
    sources: dict[str, str] = {}
    measured: dict[str, Any] = {}
    version: Version = FORMAT
    one_pass: bool | UnsetType = UNSET  # which leaves digests of other profiles alone
    slots_less: Annotated[int, Meta(ge=0, le=1)] | UnsetType = UNSET
    server: Server | UnsetType = UNSET

    def digest(self) -> str:
        """Fingerprint of the numbers: equal profiles have equal ones, from any file."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:16]


def read_profile(name: str, base: Path) -> HardwareProfile:
    """Read a profile by its shipped name, or from a JSON file, relative to the folder `base`.

    Raises InputError if there is none, or if it does not parse.
    """
    shipped = shipped_files("profiles")
    path = shipped.get(name, base / name)
    if not is_file(path):
        raise InputError(
            f"profile: no file {shortened(name)}; give a path, or one of {', '.join(shipped) or 'none shipped'}"
        )
    content = read_json(path)
    check_format(content, str(path), "calibrate again")
    return convert(content, HardwareProfile, str(path))


def write_profile(profile: HardwareProfile, path: Path) -> None:
    """Write a profile as JSON."""
    write_json(profile, path)
