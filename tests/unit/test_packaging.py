"""The tree, an editable install, a wheel and a wheel made from the sdist hold the same modules."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

SOURCES = ("irkit", "passes", "frontends")
LIST_MODULES = """
import pkgutil, irkit
def fail(name):
    raise
names = [module.name for module in pkgutil.walk_packages(irkit.__path__, "irkit.", onerror=fail)]
print("\\n".join(sorted(names)))
"""


def tree_files(root: Path) -> set[str]:
    """The files of the package as the tree has them, the two symlinks followed, relative to the root."""
    found: set[str] = set()
    for folder, folders, files in os.walk(root / "irkit", followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__"]
        found |= {(Path(folder) / name).relative_to(root).as_posix() for name in files if not name.endswith(".pyc")}
    return found


def tree_modules(root: Path) -> list[str]:
    """The dotted names of the modules below ``irkit``, from the file names alone."""
    names: set[str] = set()
    for file in tree_files(root):
        if file.endswith(".py"):
            parts = Path(file).with_suffix("").parts
            names.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return sorted(names - {"irkit"})


def python(
    code: str, cwd: Path, *, path: Path | None = None, isolated: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter with ``path`` alone as its PYTHONPATH; an isolated one sees nothing installed."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        env["PYTHONPATH"] = str(path)
    flags = ["-S"] if isolated else []
    return subprocess.run(
        [sys.executable, *flags, "-c", code], cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False
    )


def modules_seen(cwd: Path, *, path: Path | None = None, prelude: str = "", isolated: bool = False) -> list[str]:
    """The modules that a fresh interpreter finds, importing packages on the way."""
    done = python(prelude + LIST_MODULES, cwd, path=path, isolated=isolated)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def build(hook: str, source: Path, target: Path) -> Path:
    """Call a hook of the build backend (PEP 517, PEP 660) in ``source``; return the file that it made in ``target``."""
    target.mkdir()
    code = f"from setuptools import build_meta; build_meta.{hook}({str(target)!r})"
    done = python(code, source)
    assert done.returncode == 0, done.stderr
    (made,) = target.iterdir()
    return made


def unzip(wheel: Path, target: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


@pytest.fixture(scope="module")
def copy(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree, symlinks and all, in which building leaves nothing behind for others."""
    target = tmp_path_factory.mktemp("copy") / "irkit-source"
    ignore = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "site")
    shutil.copytree(root, target, symlinks=True, ignore=ignore)
    return target


@pytest.fixture(scope="module")
def wheel(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("build_wheel", copy, tmp_path_factory.mktemp("wheel") / "dist")


@pytest.fixture(scope="module")
def wheel_from_sdist(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    sdist = build("build_sdist", copy, folder / "dist")
    command = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index"]
    done = subprocess.run(
        [*command, "--wheel-dir", str(folder / "wheel"), str(sdist)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (folder / "wheel").iterdir()
    return wheel


def test_the_symlinks_are_symlinks(root: Path) -> None:
    for name in ("passes", "frontends"):
        assert (root / "irkit" / name).is_symlink()
        assert (root / "irkit" / name).resolve() == root / name


def test_the_tree_holds_modules_of_all_three_folders(root: Path) -> None:
    modules = tree_modules(root)
    assert {"irkit.errors", "irkit.passes", "irkit.frontends"} <= set(modules)


def test_tree_on_path_holds_the_modules_of_the_tree(root: Path, tmp_path: Path) -> None:
    assert modules_seen(tmp_path, path=root) == tree_modules(root)


def test_installed_package_holds_the_modules_of_the_tree(root: Path, tmp_path: Path) -> None:
    assert modules_seen(tmp_path) == tree_modules(root)


def test_python_m_pytest_sees_the_tree(root: Path) -> None:
    import irkit

    assert Path(irkit.__file__ or "").resolve() == root / "irkit" / "__init__.py"


@pytest.mark.parametrize("name", ["passes", "frontends"])
def test_a_second_name_is_refused(name: str, root: Path, tmp_path: Path) -> None:
    done = python(f"import {name}", tmp_path, path=root, isolated=True)
    assert done.returncode == 1
    assert f"import this package as irkit.{name}, not as {name}" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("made", ["wheel", "wheel_from_sdist"])
def test_a_wheel_holds_the_files_of_the_tree(
    made: str, root: Path, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with zipfile.ZipFile(request.getfixturevalue(made)) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        entry_points = next(name for name in archive.namelist() if name.endswith("/entry_points.txt"))
        assert "[xdsl.universe]" in archive.read(entry_points).decode()
    assert names == tree_files(root)
    assert "irkit/py.typed" in names
    unpacked = unzip(request.getfixturevalue(made), tmp_path / "unpacked")
    assert modules_seen(tmp_path, path=unpacked) == tree_modules(root)


@pytest.mark.slow
def test_a_fresh_editable_install_holds_the_modules_of_the_tree(copy: Path, root: Path, tmp_path: Path) -> None:
    site = unzip(build("build_editable", copy, tmp_path / "dist"), tmp_path / "site")
    # Without the site module no .pth file of the environment is read, so that its own install of irkit can't answer.
    prelude = (
        "import site, sys\n"
        f"site.addsitedir({str(site)!r})\n"
        f"sys.path.append({sysconfig.get_path('purelib')!r})\n"
        "import irkit\n"
        f"assert irkit.__file__.startswith({str(copy)!r}), irkit.__file__\n"
    )
    assert modules_seen(tmp_path, prelude=prelude, isolated=True) == tree_modules(root)
