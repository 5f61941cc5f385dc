"""Build the wheels of a release and try them as users would: in clean environments, without a compiler.

`python scripts/try_wheels.py` builds the source distribution, from it a wheel for 3.11, one on the stable ABI for 3.12
and later, and the pure one. Each is installed for every Python that `pyproject.toml` names and that is on this
machine; there a network predicts with `hdcos.local()`, and the wheels with kernels serve a cluster over HTTPS, too.
`--wheels FOLDER` tries wheels that were built elsewhere. `make wheels` runs it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
FIRST_STABLE = (3, 12)
PREDICT = """
import importlib.util, json, sys, warnings
import numpy as np
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    import hdcos
    from hdcos import nn, ring
    from hdcos.ring.cuda import sources
    model = nn.Sequential([nn.HadamardDiagonal(20, 32), nn.Cos(), nn.Dense(32, 3)], seed=0)
    x = np.random.default_rng(0).uniform(-1, 1, (50, 20))
    with hdcos.local() as cluster:
        error = float(np.abs(cluster.share(model).predict(x) - model(x)).max())
print(json.dumps({
    "version": hdcos.__version__, "backend": ring.backend(), "error": error, "file": hdcos.__file__,
    "warnings": [w.category.__name__ for w in seen], "server": importlib.util.find_spec("starlette") is not None,
    "gpu": sorted(name for file in sources.files() if sources.source(file) for name in sources.kernels_of(file)),
}))
"""
SERVE = """
import json, pathlib, signal, subprocess, sys
import numpy as np
import hdcos
from hdcos import nn
folder = pathlib.Path(sys.argv[1])
hdcos_command = [sys.executable, "-W", "error", "-m", "hdcos"]
subprocess.run([*hdcos_command, "init", "--single-machine", folder], check=True, stdout=subprocess.DEVNULL)
nodes = []
try:
    for role in ("dealer", "party0", "party1"):
        command = [*hdcos_command, role.rstrip("01"), "--node", folder / role, "--cluster", folder / "cluster.toml"]
        nodes.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
    for node in nodes:
        assert "listening on" in node.stderr.readline()
    model = nn.models.mlp([6, 8, 3])
    x = np.random.default_rng(0).uniform(-1, 1, (4, 6))
    with hdcos.connect(folder / "cluster.toml", token=(folder / "token").read_text().strip()) as cluster:
        print(json.dumps({"error": float(np.abs(cluster.share(model, "tiny").predict(x) - model(x)).max())}))
finally:
    for node in nodes:
        node.send_signal(signal.SIGTERM)
        node.wait(30)
"""
MOST_ERROR = 1e-2


def tested_versions() -> list[tuple[int, int]]:
    """The Pythons that the classifiers promise."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    found = (re.fullmatch(r"Programming Language :: Python :: (\d+)\.(\d+)", line) for line in classifiers)
    return [(int(match[1]), int(match[2])) for match in found if match]


def name(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def find_python(version: tuple[int, int]) -> str | None:
    """An interpreter of this version: of this process, on the path or of pyenv."""
    dotted = name(version)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [sys.executable, shutil.which(f"python{dotted}"), *sorted(pyenv.glob(f"{dotted}.*/bin/python"))]
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    for candidate in filter(None, candidates):
        said = subprocess.run([candidate, "-c", ask], capture_output=True, text=True, check=False)
        if said.stdout.strip() == dotted:
            return str(candidate)
    return None


def build(pythons: dict[tuple[int, int], str], folder: Path) -> None:
    """The source distribution, and from it every wheel that these interpreters can build."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        python = new_environment(next(iter(pythons.values())), Path(place) / "build")
        run(python, "-m", "pip", "install", "--quiet", "build")
        run(python, "-m", "build", "--sdist", "--outdir", str(folder), str(ROOT))
    (source,) = folder.glob("*.tar.gz")
    own = {version: python for version, python in pythons.items() if version < FIRST_STABLE}
    stable = [version for version in pythons if version >= FIRST_STABLE][:1]
    for version in [*own, *stable]:
        run(pythons[version], "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(source))
    options = ("--quiet", "--no-deps", "--wheel-dir", str(folder), str(source))
    run(next(iter(pythons.values())), "-m", "pip", "wheel", *options, HDCOS_PURE="1")


def new_environment(python: str, folder: Path) -> str:
    run(python, "-m", "venv", str(folder))
    return str(folder / "bin" / "python")


def run(*command: str, **environment: str) -> str:
    """What a command prints; its errors end this program."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HDCOS_"))}
    print("  $", *(word if "\n" not in word else "..." for word in command), flush=True)
    done = subprocess.run(command, env={**kept, **environment}, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def wheel_for(version: tuple[int, int], wheels: Path, pure: bool) -> Path:
    """The wheel that pip would choose for this Python and this processor, or the pure one."""
    own = f"cp{version[0]}{version[1]}"
    tag = "py3-none-any" if pure else f"{own}-{own}-*" if version < FIRST_STABLE else "cp312-abi3-*"
    machine = "" if pure else os.uname().machine
    found = list(wheels.glob(f"hdcos-*-{tag}{machine}.whl"))
    if len(found) != 1:
        sys.exit(f"{wheels} has {len(found)} wheels {tag}{machine} for Python {name(version)}, not one")
    return found[0]


def try_wheel(python: str, wheel: Path, pure: bool) -> str:
    """Install a wheel into a new environment, predict there, and serve; what was found."""
    with tempfile.TemporaryDirectory() as place:
        there = new_environment(python, Path(place) / "environment")
        bare = {"PATH": str(Path(there).parent), "CC": "/bin/false", "CXX": "/bin/false"}
        install = (there, "-m", "pip", "install", "--quiet", "--only-binary", ":all:")
        run(*install, str(wheel), **bare)
        found = json.loads(run(there, "-c", PREDICT, **bare))
        assert found["file"].startswith(place), found
        assert found["error"] < MOST_ERROR, found
        assert not found["server"], found
        assert found["gpu"] == gpu_kernels(), found
        assert found["warnings"] == (["SlowKernels"] if pure else []), found
        assert found["backend"].startswith("reference" if pure else "native"), found
        said = f"hdcos {found['version']}, {found['backend']}: local() is off by {found['error']:.1e}"
        if pure:
            return said
        run(*install, f"{wheel}[server]", **bare)
        served = json.loads(run(there, "-c", SERVE, str(Path(place) / "home"), **bare))
        assert served["error"] < MOST_ERROR, served
        return f"{said}, HTTPS by {served['error']:.1e}"


def gpu_kernels() -> list[str]:
    """The kernels for GPUs, which a device's machine compiles: their sources must be in every wheel."""
    folder = ROOT / "src" / "hdcos" / "ring" / "cuda"
    texts = [path.read_text() for path in folder.glob("*.cu")]
    return sorted(name for text in texts for name in re.findall(r"^KERNEL (\w+)\(", text, re.MULTILINE))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--wheels", type=Path, help="a folder of wheels to try, instead of building them")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "dist", help="where wheels are built")
    parser.add_argument("--python", action="append", help="try this version only, such as 3.12; may be given often")
    options = parser.parse_args()
    wanted = [version for version in tested_versions() if not options.python or name(version) in options.python]
    pythons = {version: python for version in wanted if (python := find_python(version))}
    wheels = options.wheels
    if wheels is None:
        wheels = options.output
        shutil.rmtree(wheels, ignore_errors=True)
        build(pythons, wheels)
    lines = []
    for version, python in pythons.items():
        for pure in (False, True):
            wheel = wheel_for(version, wheels, pure)
            lines.append(f"{name(version)}  {wheel.name}: {try_wheel(python, wheel, pure)}")
    print("\n" + "\n".join(lines))
    missing = [name(version) for version in wanted if version not in pythons]
    if missing:
        sys.exit(f"not tried, for this machine does not have it: Python {', '.join(missing)}")


if __name__ == "__main__":
    main()
