"""A profile in rows for people: each quantity with its unit and its fit error."""

from collections.abc import Iterator

from msgspec.structs import asdict, astuple, fields

from specfleet.fleet.acceptance.models import AcceptanceModel, Recorded, expected_committed
from specfleet.fleet.times.effects import IdleEffect
from specfleet.fleet.times.labels import MEANINGS, basis_of, left_out_of, warning_of
from specfleet.fleet.times.overhead import Overhead, Overheads, StationOverheads
from specfleet.fleet.times.profile import STEPS, HardwareProfile
from specfleet.fleet.times.roofline import Roofline
from specfleet.fleet.times.step_time import StepTime

SHOWN_TOKENS = (1, 16, 256)  # tokens of an estimated pass
DELAYS = ", ".join(delay.name for delay in fields(Overhead))
LEGEND = (
    "Times of steps: k tokens, n tokens of context, r further rows of m tokens each, [r] once if there are any.",
    "Overhead of a step: wait for the device (queued), start of an idle station (woken), way of its result (after).",
)


def formula_ms(time: StepTime) -> str:
    """The mean of a step in milliseconds over k tokens and n of context, r further rows of m tokens, [r] if any."""
    terms = [
        (time.base_s, ""), (time.per_token_s, " k"), (time.per_context_token_s, " n"),
        (time.per_token_context_s, " k n"), (time.per_row_s, " r"), (time.per_row_token_s, " m"),
        (time.per_row_context_s, " r n"), (time.several_s, " [r]"), (time.several_per_token_s, " [r] k"),
    ]  # fmt: skip
    terms_ms = [f"{1000 * value:.3g}{term}" for value, term in terms if value]
    if time.roofline is not None:
        terms_ms.append(roofline_ms(time.roofline))
    return (" + ".join(terms_ms) or "0") + " ms"


def roofline_ms(roofline: Roofline) -> str:
    """Return the times in milliseconds of an estimated pass at some tokens, and of context in a row of one token."""
    at = [f"{1000 * roofline.mean_s(1, 0, fed, fed - 1):.3g} at {fed}" for fed in SHOWN_TOKENS]
    a_thousand_ms = roofline.mean_s(1, 1000) - roofline.mean_s(1, 0)
    passes = "k x (" if roofline.in_turn else "("
    return f"{passes}estimated: {', '.join(at)} tokens a pass, + {1000 * a_thousand_ms:.2g} a row and 1000 n)"


def describe(profile: HardwareProfile) -> Iterator[tuple[str, str, str]]:
    """Yield rows for people: quantity, value with unit, and the fit's median relative error."""
    if warning := warning_of(basis_of(profile)):
        yield "all that rests on it", warning, ""
    yield from _steps(profile)
    yield from _overheads(profile.overhead)
    bandwidth, idle = profile.link.bandwidth_bytes_per_s, profile.idle
    rate = f", {bandwidth / 1e6:.3g} MB/s" if bandwidth else ""
    yield "link, one way", f"{1000 * profile.link.latency_s:.3g} ms{rate}", ""
    if idle != IdleEffect():
        gaps_ms = f"{1000 * idle.gaps_s[0]:.3g} .. {1000 * idle.gaps_s[-1]:.3g} ms"
        yield f"draft after an idle gap of {gaps_ms}", f"x {idle.slowdowns[0]:.3f} .. {idle.slowdowns[-1]:.3f}", ""
    for tokens, left in enumerate(idle.recoveries[1:], start=1):
        yield f"of that slowdown, left after {tokens} warm-up token{'s' * (tokens > 1)}", f"{left:.0%}", ""
    for k, factor in enumerate(profile.contention[1:], start=2):
        yield f"{k} steps at once on one device, each (contention)", f"x {factor:.3f}", ""
    if (share := profile.measured.get("delayed_share")) is not None:
        yield "steps that the host delayed, left out", f"{share:.1%}", ""
    if (share := profile.measured.get("passes_differ")) is not None:
        yield "same steps, the slowest pass over the quickest", f"+ {share:.1%}", ""
    for missing, reason in left_out_of(profile).items():
        yield MEANINGS[missing], f"not measured: {reason}", ""
    yield from _acceptance(profile.acceptance)


def _steps(profile: HardwareProfile) -> Iterator[tuple[str, str, str]]:
    fits = profile.measured.get("steps", {})
    for name in (*STEPS, "realign"):
        time: StepTime = getattr(profile, name)
        fit = fits.get("prefill" if name == "verify_prefill" else name)
        error = f"{fit['error']:.1%}, {fit['steps']} steps" if fit else ""
        if name != "realign" or time != StepTime():
            yield name, formula_ms(time), error


def _acceptance(model: AcceptanceModel | None) -> Iterator[tuple[str, str, str]]:
    """Yield a row for the mean of recorded lengths and one for each fitted model, with its distance from them."""
    if not isinstance(model, Recorded):
        return
    from specfleet.fleet.acceptance import fits  # noqa: PLC0415  (scipy.optimize takes a second)

    if len(model.sessions) > 1:
        mean, low, high, alike = fits.mean_interval(model.sessions)
        what = f"acceptance, mean of {sum(map(len, model.sessions))} rounds"
        wider = f"interval x {alike:.1f}, as requests differ"
        yield what, f"{mean:.3g} ({low:.3g} to {high:.3g}) draft tokens a round", wider
    if drafted := [tokens for session in model.drafted for tokens in session]:
        share, tokens = sum(map(bool, drafted)) / len(drafted), sum(drafted) / len(drafted)
        yield "prompt lookup finds a draft for", f"{share:.0%} of rounds; {tokens:.3g} tokens a round", ""
    for name, fit in ("geometric", fits.fit_geometric(model)), ("beta-geometric", fits.fit_beta_geometric(model)):
        parameters = ", ".join(f"{key} = {value:.3g}" for key, value in asdict(fit).items())
        ours, recorded = (expected_committed(either, model.depth) for either in (fit, model))
        error = f"tokens a round {ours / recorded - 1:+.1%}, total variation {fits.total_variation(fit, model):.1%}"
        yield f"acceptance, {name}", parameters, error


def _overheads(overheads: Overheads) -> Iterator[tuple[str, str, str]]:
    for stations, how in (overheads.own, ""), (overheads.time_sliced, " taking turns"):
        for station in fields(StationOverheads) if stations is not None else ():
            means_s = [delay.mean_s for delay in astuple(getattr(stations, station.name))]
            if any(means_s):
                means = ", ".join(f"{1000 * mean_s:.3g}" for mean_s in means_s)
                yield f"overhead of a {station.name}{how}: {DELAYS}", f"{means} ms", ""
