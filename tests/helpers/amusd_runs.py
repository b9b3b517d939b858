"""Run files of AMUSD's authors' program for a made-up machine: its loops step by step, on one clock.

The simulator is not used. The clocks are the program's: a step's clock may stop before its kernels are done, processes
wait for each other, and each run's clock begins at its own point.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

DEPTH = 5
POLL_S = 1e-4  # both processes poll the shared memory at this interval


@dataclass
class Machine:
    """A machine and a pair of models; times in seconds.

    - `launch`: kernels of a step, target's and drafter's.
    - `token_wait`, `verify_wait`, `draft_wait`: until they are done.
    - `gap`: between two rounds; `call`: to another process. `cold`: first pass of a process.
    - `prefill`: the passes over the prompt, on the GPU.
    - `agrees`: after an agreement, a mismatch.
    """

    rng: np.random.Generator
    tokens: int
    launch: tuple[float, float] = (0.022, 0.0115)
    token_wait: float = 0.002
    verify_wait: float = 0.008
    draft_wait: float = 0.0003
    gap: float = 0.0003
    call: float = 0.0001
    cold: float = 0.5
    prefill: tuple[float, float] = (0.2, 0.03)
    agrees: tuple[float, float] = (0.97, 0.75)
    text: list[bool] = field(default_factory=list)

    def jitter(self, time_s: float) -> float:
        """Return the time with jitter: 1 % up or down, sometimes much longer."""
        spike = 1.3 if self.rng.random() < 0.01 else 1.0
        return float(time_s * spike * self.rng.normal(1.0, 0.01))


def any_machine(seed: int, **fixed: Any) -> Machine:
    """Draw a machine, a pair and a text: the family for the readers' laws."""
    rng = np.random.default_rng(seed)
    between = rng.uniform
    target_s = between(0.018, 0.030)
    prefill_s = between(0.03, 0.3)
    drawn: dict[str, Any] = {
        "tokens": int(between(400, 1400)),
        "launch": (target_s, target_s * between(0.42, 0.6)),
        "token_wait": between(0.0002, 0.003),
        "verify_wait": between(0.003, 0.009),
        "draft_wait": between(0.0001, 0.0005),
        "gap": between(0.0001, 0.0004),
        "call": between(0.00003, 0.00015),
        "cold": between(0.2, 0.8),
        "prefill": (prefill_s, prefill_s * between(0.12, 0.25)),
        "agrees": (between(0.9, 0.985), between(0.5, 0.9)),
    }
    return Machine(rng, **(drawn | fixed))


def run_file(machine: Machine) -> list[dict[str, Any]]:
    """Return a run file's entries: a sample greedily, by sd, and by amusd."""
    entries = []
    machine.text = draw_text(machine)
    for strategy, decode in (("greedy", greedy), ("sd", synchronous), ("amusd", asynchronous)):
        total_s, metrics = decode(machine, machine.cold)
        metrics |= {"total_time": total_s, "tokens_generated": machine.tokens}
        metrics["time_per_token"] = total_s / machine.tokens
        metrics["gpustats"] = [{"gpu_powers": [200.0, 90.0]}] * 2
        entries.append({"sample_index": 0, "strategy": strategy, "metrics": metrics})
    return entries


def draw_text(machine: Machine) -> list[bool]:
    """Draw the agreement of drafter and target; longer than the answer, since the last round may reach beyond it."""
    text, agreed = [], True
    for _ in range(machine.tokens + 64):
        agreed = bool(machine.rng.random() < machine.agrees[0 if agreed else 1])
        text.append(agreed)
    return text


def first_launch_s(machine: Machine, which: int, cold_s: float) -> float:
    """Return the launch time of the first pass over a prompt: a cold process loads all kernels."""
    return machine.jitter(cold_s + machine.launch[which])


def greedy(machine: Machine, cold_s: float) -> tuple[float, dict[str, Any]]:
    """Decode without a drafter; its clock includes the prefill, and a token's clock no wait."""
    launched_s = first_launch_s(machine, 0, cold_s)
    now_s = max(launched_s, machine.prefill[0])
    times = [machine.jitter(machine.launch[0]) for _ in range(machine.tokens - 1)]
    waits = [machine.jitter(machine.token_wait) for _ in times]
    return now_s + sum(times) + sum(waits), {"token_times": times}


def synchronous(machine: Machine, cold_s: float) -> tuple[float, dict[str, Any]]:
    """Draft and verify in turn; the clock begins once both prefills are launched."""
    launched_s = first_launch_s(machine, 1, cold_s) + first_launch_s(machine, 0, cold_s / 10)
    behind_s = max(sum(machine.prefill) - launched_s, 0.0)  # remaining work of the GPU
    drafts, verifications, accepted = [], [], []
    place, now_s, full = 1, 0.0, False
    while place < machine.tokens:
        for _ in range(DEPTH + full):
            drafts.append(machine.jitter(machine.launch[1]) + (0.9 * behind_s if not drafts else 0.0))
        wait_s = machine.draft_wait + machine.verify_wait + (0.1 * behind_s if not verifications else 0.0)
        verifications.append(machine.jitter(machine.launch[0]) + wait_s)
        draft = machine.text[place : place + DEPTH]
        agreed = draft.index(False) if False in draft else DEPTH
        accepted.append(agreed + 1)
        full = agreed == DEPTH
        place += agreed + 1
        now_s += machine.jitter(machine.gap)
    total_s = sum(drafts) + sum(verifications) + now_s
    return total_s, {"draft_times": drafts, "verify_times": verifications, "accepted_tokens": accepted}


@dataclass
class Drafter:
    """The drafting process: its published drafts, as (time, length, length of the right part)."""

    machine: Machine
    now_s: float
    length: int = 1
    right: int = 1
    verified_before: int = 1
    times: list[float] = field(default_factory=list)
    published: list[tuple[float, int, int]] = field(default_factory=list)
    answers: list[float] = field(default_factory=list)  # times of answers to roll-backs

    def step(self, verified: list[tuple[float, int]]) -> None:
        """Draft one token, publish it, and read the verified length."""
        m = self.machine
        takes_s = m.jitter(m.launch[1]) + m.draft_wait
        end_s = self.now_s + takes_s
        if self.right == self.length and m.text[self.length]:
            self.right += 1
        self.length += 1
        self.published.append((end_s, self.length, self.right))
        known = [length for time_s, length in verified if time_s <= end_s][-1]
        if known > self.verified_before:
            if min(known, self.length) > self.right:  # its first wrong token differs from a verified one
                if known < self.length:
                    self.answers.append(end_s)
                self.length = self.right = known
                self.published.append((end_s, -known, known))  # published with the next draft only
            self.verified_before = known
        self.times.append(takes_s)
        self.now_s = end_s + m.jitter(m.call)

    def at(self, time_s: float) -> tuple[int, int]:
        """Return length and right length of the published draft at a time."""
        return [(length, right) for event_s, length, right in self.published if event_s <= time_s and length > 0][-1]


def found_s(drafter: Drafter, verified: list[tuple[float, int]], from_s: float, answers: int, length: int) -> float:
    """Return when the polling target finds its roll-backs answered and a draft of that length."""
    time_s = from_s
    while True:
        while drafter.now_s <= time_s + POLL_S:
            drafter.step(verified)
        if sum(answered_s <= time_s for answered_s in drafter.answers) >= answers and drafter.at(time_s)[0] >= length:
            return time_s
        time_s += POLL_S


def asynchronous(machine: Machine, cold_s: float) -> tuple[float, dict[str, Any]]:
    """Draft and verify at once, in two processes; the clock begins with the target's prefill."""
    m = machine
    launched_s = first_launch_s(m, 0, cold_s)
    prefilled_s = max(launched_s, m.prefill[0])
    drafting_s = prefilled_s + max(first_launch_s(m, 1, cold_s), m.prefill[1]) + m.prefill[1] + m.launch[1]
    drafter = Drafter(m, drafting_s, published=[(prefilled_s, 1, 1)])
    verified = [(prefilled_s, 1)]
    now_s, place, asked = launched_s, 1, 0
    times: list[float] = []
    accepted: list[int] = []

    while place < m.tokens:
        began_s = max(now_s, prefilled_s)
        verified.append((began_s, place))
        seen_s = found_s(drafter, verified, began_s, asked, place + 2)
        length, right = drafter.at(seen_s)
        alone = right < place
        end_s = seen_s + m.jitter(m.launch[0]) + (0.0 if alone else m.verify_wait)
        drafted = 0 if alone else length - place
        agreed = 0 if alone else min(right, length) - place
        asked += agreed < drafted
        place += agreed + 1
        times.append(end_s - now_s)
        accepted.append(agreed + 1)
        now_s = end_s + m.jitter(m.gap / 2) + (m.token_wait if alone else 0.0)
    while drafter.now_s < now_s:
        drafter.step(verified)
    total_s = now_s + m.call
    return total_s, {"draft_times": drafter.times, "verify_times": times, "accepted_tokens": accepted}
