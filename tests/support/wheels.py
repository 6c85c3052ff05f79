"""Makes tiny Python packages to install without any index."""

import hashlib
import zipfile
from importlib.metadata import distribution
from pathlib import Path


def a_wheel(folder: Path, name: str, code: str) -> Path:
    """Write a wheel of a package with one module; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-1.0.dist-info"
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", code)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path


def requirements(folder: Path, *names: str) -> str:
    """Return a list of packages that are taken from a folder alone."""
    return "\n".join(["--no-index", f"--find-links {folder}", *names, ""])


def pylock(*wheels: Path) -> str:
    """Return a lock file of wheels."""
    packages = [
        f"""
[[packages]]
name = "{wheel.name.partition("-")[0].replace("_", "-")}"
version = "1.0"

[[packages.wheels]]
name = "{wheel.name}"
url = "{wheel.as_uri()}"
hashes = {{sha256 = "{hashlib.sha256(wheel.read_bytes()).hexdigest()}"}}
"""
        for wheel in wheels
    ]
    return "".join(['lock-version = "1.0"\ncreated-by = "tests"\n', *packages])


def wheel_of(name: str, folder: Path) -> Path:
    """Write the wheel of a pure package that is installed here; return its path."""
    installed = distribution(name)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{installed.version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for file in installed.files or ():
            if file.parts[0] != ".." and file.suffix != ".pyc":
                wheel.write(file.locate(), str(file))
    return path
