"""What MkDocs runs while it builds the site: the navigation, and one reference page for each public module.

Pages are found, not listed: a file put under ``docs/tutorials`` appears among the tutorials, by the order of its name.
"""

from __future__ import annotations

import os
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
SECTIONS = {"tutorials": "Tutorials", "how-to": "How-to", "reference": "Reference", "explanation": "Explanation"}
API = "reference/api"


def public_modules() -> list[str]:
    """The dotted names of all modules of ``irkit`` whose path has no part that starts with an underscore, sorted."""
    modules: list[str] = []
    for folder, folders, files in os.walk(ROOT / "irkit", followlinks=True):
        folders[:] = [
            name for name in folders if not name.startswith("_") and (Path(folder) / name / "__init__.py").exists()
        ]
        package = Path(folder).relative_to(ROOT).parts
        modules.append(".".join(package))
        modules += [
            ".".join((*package, name[:-3])) for name in files if name.endswith(".py") and not name.startswith("_")
        ]
    return sorted(modules)


def pages_of(folder: Path) -> list[str]:
    """The pages that stand directly in a folder, ``index.md`` first."""
    names = sorted(path.name for path in folder.glob("*.md"))
    return sorted(names, key=lambda name: name != "index.md")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Build the navigation from what is there."""
    docs = Path(config.docs_dir)
    nav: list[str | dict[str, object]] = list(pages_of(docs))
    for name, title in SECTIONS.items():
        entries: list[str | dict[str, object]] = [f"{name}/{page}" for page in pages_of(docs / name)]
        if name == "reference":
            entries.append({"Modules": [{module: f"{API}/{module}.md"} for module in public_modules()]})
        nav.append({title: entries})
    config.nav = nav
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each public module, whose content mkdocstrings makes from the docstrings."""
    for module in public_modules():
        files.append(File.generated(config, f"{API}/{module}.md", content=f"# {module}\n\n::: {module}\n"))
    return files
