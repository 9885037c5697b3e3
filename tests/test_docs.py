"""The README and the guides: generated parts are current, and examples run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from edenmem.settings.load import load_settings
from tests.support import readme


@pytest.mark.slow
@pytest.mark.parametrize("name", readme.MAKERS)
def test_generated_parts_are_current(name: str) -> None:
    assert readme.made(name) == readme.MAKERS[name](), "run: python -m tests.support.readme"


@pytest.mark.slow
def test_the_demo_fits_one_screen_and_is_the_picture() -> None:
    printed = readme.demo_output()
    assert len(printed.splitlines()) <= 22  # with the prompt and the note about the script
    assert all(len(line) <= 80 for line in printed.splitlines())
    shown = readme.picture_text(readme.PICTURE.read_text("utf-8"))
    for line in printed.splitlines():
        assert " ".join(line.split()) in shown, "run: python -m tests.support.readme"


@pytest.mark.slow
def test_the_picture_of_the_browser_is_current() -> None:
    drawn, kept = readme.draw_browser(), readme.BROWSER_PICTURE.read_text("utf-8")
    assert readme.picture_text(drawn) == readme.picture_text(kept), (
        "run: python -m tests.support.readme"
    )


def test_the_readme_is_short() -> None:
    assert len(readme.README.read_text("utf-8").splitlines()) <= 150


@pytest.mark.parametrize("page", readme.pages(), ids=lambda page: page.stem)
def test_links_lead_to_existing_files(page: Path) -> None:
    text = page.read_text("utf-8")
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", text) + re.findall(r'src="([^"]+)"', text)
    for link in links:
        if not link.startswith(("http://", "https://")):
            assert (page.parent / link).exists(), link


def test_the_readme_links_to_every_guide() -> None:
    text = readme.README.read_text("utf-8")
    for page in readme.GUIDES.glob("*.md"):
        assert f"](edenmem/docs/{page.name})" in text, f"add {page.name} to README.md"


@pytest.mark.slow
def test_the_guides_build_as_a_site(tmp_path: Path) -> None:
    """Without a warning, and without anything from other hosts."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    file = readme.GUIDES.parent / "mkdocs.yml"
    build(load_config(str(file), strict=True, site_dir=str(tmp_path)))
    pages = list(tmp_path.glob("*.html"))
    assert {page.stem for page in readme.GUIDES.glob("*.md")} < {page.stem for page in pages}
    for page in pages:
        loaded = re.findall(r'<(?:link|script)[^>]+(?:href|src)="([^"]+)"', page.read_text("utf-8"))
        assert not [each for each in loaded if "//" in each], page.name


def test_installation_works_from_a_clone() -> None:
    """The package is not on PyPI: only a path can be installed, with extras that exist."""
    project = tomllib.loads((readme.README.parent / "pyproject.toml").read_text("utf-8"))
    extras = set(project["project"]["optional-dependencies"])
    examples = readme.README.parent.glob("examples/*.py")
    for page in (*readme.pages(), *examples):
        for line in page.read_text("utf-8").splitlines():
            if "pip install" in line:
                assert "edenmem[" not in line, f"{page.name}: {line}"
                named = re.search(r"\s\"?\.(?:\[([a-z,]+)\])?", line.partition("pip install")[2])
                assert named, f"{page.name}: {line}"
                assert set((named[1] or "local").split(",")) <= extras, f"{page.name}: {line}"


@pytest.fixture
def person(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a user with edenmem on the path, without configuration."""
    binaries = str(Path(sys.executable).parent)
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith(("EDENMEM_", "OPENAI_"))},
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
        "COLUMNS": "80",
    }


def run_script(script: str, folder: Path, person: dict[str, str]) -> str:
    """Run a shell script that must not fail, and return its output."""
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{script}"],
        cwd=folder,
        env=person,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_readme_runs(tmp_path: Path, person: dict[str, str]) -> None:
    (block,) = [each for each in readme.blocks("sh", readme.README) if each.startswith("edenmem")]
    assert "The Lantern Walk starts at 17:30" in run_script(block, tmp_path, person)


@pytest.mark.slow
def test_the_tour_runs(tmp_path: Path, person: dict[str, str]) -> None:
    (tmp_path / "examples").symlink_to(readme.ROOT / "examples")
    page = readme.GUIDES / "tour.md"
    (program,) = readme.blocks("python", page)
    script = "".join(readme.blocks("sh", page)) + f"python - <<'PROGRAM'\n{program}PROGRAM\n"
    printed = run_script(script, tmp_path, person)
    assert "OP-7731" in printed
    assert "starts at 18:00" in printed
    assert "[HOW TO SPEAK WITH LENA]" in printed


@pytest.mark.slow
def test_the_program_of_the_library_guide_runs(tmp_path: Path, person: dict[str, str]) -> None:
    program = readme.blocks("python", readme.GUIDES / "library.md")[0]
    assert len(program.splitlines()) <= 40
    printed = run_script(f"python - <<'PROGRAM'\n{program}PROGRAM\n", tmp_path, person)
    assert re.match(
        r"0\.\d\d Lena's workshop in Porto opens on 3 March\.\n<MemoryContext>", printed
    )
    assert "hives" in printed


@pytest.mark.slow
def test_the_steps_of_troubleshooting_run(tmp_path: Path, person: dict[str, str]) -> None:
    block = readme.blocks("sh", readme.GUIDES / "troubleshooting.md")[0]
    prepare = "edenmem init --yes --uri sqlite:///m.db --write-config\nedenmem agent add mira\n"
    assert "mira" in run_script(prepare + block, tmp_path, person)


def test_the_example_configuration_loads(tmp_path: Path) -> None:
    (block,) = readme.blocks("toml", readme.GUIDES / "settings.md")
    assert tomllib.loads(block)
    file = tmp_path / "edenmem.toml"
    file.write_text(block)
    plain = load_settings(config=file, environ={}, cwd=tmp_path)
    laptop = load_settings(config=file, profile="laptop", environ={}, cwd=tmp_path)
    assert plain.settings.store.uri.startswith("mongodb://")
    assert laptop.settings.store.uri.endswith("memory.db")
    assert plain.settings.scopes.user.word_limit == 400
    assert plain.settings.scopes.user.consolidate_at == 4


def test_the_gate_runs_the_command_of_the_readme() -> None:
    assert "-m pytest" in readme.command("tests")
    assert "edenmem demo" in readme.command("demo")
    assert "command: tests" in (readme.ROOT / ".ci" / "run").read_text()


def test_each_promise_of_security_has_an_existing_test() -> None:
    text = (readme.ROOT / "SECURITY.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", text)
    assert len(named) >= 20
    for file, name in named:
        source = (readme.ROOT / file).read_text()
        assert re.search(rf"def {name}\(", source), f"{file} has no {name}"
    promises = text.split("## Promises")[1].split("## Dependencies")[0]
    for promise in promises.split("\n\n**")[1:]:
        assert "::test_" in promise, promise.splitlines()[0]
