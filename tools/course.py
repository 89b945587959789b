"""Write the course edition: every section as a notebook of its own, for students and for instructors.

    python tools/course.py                    # _build/course/student, instructor, and a zip of each
    python tools/course.py --output FOLDER    # elsewhere
    python tools/course.py --online FOLDER    # and the folder that is put online with the book

The pages come from the same sources as the book, through the builder in ``course_pages``; beside them lie the
files that they read, the wheel of the package, and for instructors what grades and plays the steward.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from course_pages import address

ROOT = Path(__file__).resolve().parent.parent
EDITIONS = ("student", "instructor")
BUILD = "from jupyter_book.cli.main import main; main()"


def run(*command: str | Path) -> None:
    """Run a command; show what it said and stop where it fails."""
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)


def write_pages(output: Path) -> Path:
    """Run the builder; return the folder that it wrote, with nothing of an earlier run in it."""
    folder = output / "_build" / "course"
    shutil.rmtree(folder, ignore_errors=True)
    how = (
        "--builder",
        "custom",
        "--custom-builder",
        "course",
        "--path-output",
        output,
        "-W",
        "-n",
        "--keep-going",
        "-q",
    )
    run(sys.executable, "-c", BUILD, "build", ROOT, *how)
    shutil.rmtree(folder / "_static", ignore_errors=True)  # scripts and styles of pages
    return folder


def add_files(folder: Path) -> None:
    """Put the wheel and the words of welcome into both editions, and the instructor's programs into one."""
    for name in EDITIONS:
        run(sys.executable, "-m", "uv", "build", "--quiet", "--wheel", "--out-dir", folder / name, ROOT)
        (folder / name / ".gitignore").unlink(missing_ok=True)
        words = (ROOT / "course" / f"{name}.md").read_text(encoding="utf-8")
        (folder / name / "README.md").write_text(words.replace("{address}", address()), encoding="utf-8")
        for licence in ("LICENSE", "LICENSE-text"):
            shutil.copyfile(ROOT / licence, folder / name / licence)
    for program in ("grade.py", "steward.py"):
        shutil.copyfile(ROOT / "course" / program, folder / "instructor" / program)


def pack(folder: Path) -> list[Path]:
    """Write a zip of each edition, in which everything lies in one folder."""
    packed = []
    for name in EDITIONS:
        inside = f"dpbook-{name}"
        (folder / name).rename(folder / inside)
        packed.append(Path(shutil.make_archive(str(folder / inside), "zip", folder, inside)))
        (folder / inside).rename(folder / name)
    return packed


SHELF = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>The notebooks of a course</title></head>
<body>
<h1>The notebooks of a course</h1>
<p>Everything in one file, and the package alone, which the first cell of a notebook installs:</p>
<ul>
{links}
</ul>
</body>
</html>
"""


def put_online(folder: Path, online: Path) -> None:
    """Lay out the student's edition as a folder of the book's site, with a page from which pip takes the package."""
    shutil.rmtree(online, ignore_errors=True)
    shutil.copytree(folder / "student", online)
    packed = shutil.copy(folder / "dpbook-student.zip", online)
    names = [Path(packed).name, *(wheel.name for wheel in online.glob("*.whl"))]
    links = "\n".join(f'<li><a href="{name}">{name}</a></li>' for name in names)
    (online / "index.html").write_text(SHELF.format(links=links), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--output", type=Path, default=ROOT, help="folder whose _build/course is written")
    parser.add_argument("--online", type=Path, help="folder to fill with what is put online")
    options = parser.parse_args(arguments)
    folder = write_pages(options.output.resolve())
    add_files(folder)
    for file in pack(folder):
        print(f"{file} ({file.stat().st_size / 1e6:.1f} MB)")
    if options.online is not None:
        put_online(folder, options.online.resolve())


if __name__ == "__main__":
    main()
