"""Looks for what the documents refer to: files, sections, manual pages, examples, figures."""

import re

import pages
from sandbox import ROOT

README_LINES = 230  # a stranger reads it in one sitting
PLACEHOLDER = re.compile(r"NAME|COMMAND")
SUFFIXES = ("c", "h", "md", "py", "sh")


def tree():
    """Every file of the source tree."""
    for top in ROOT.iterdir():
        if top.is_file():
            yield top
        elif not top.name.startswith((".git", "build")):
            yield from (path for path in top.rglob("*") if path.is_file())


def prose(path):
    """The text of a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.M | re.S)


# ---- Links ---------------------------------------------------------------------------------------


def anchors(path):
    """The names of a page's sections in links."""
    for title in re.findall(r"^#+ (.*)$", prose(path), re.M):
        yield re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def is_lost(path, link):
    file, _, section = link.partition("#")
    target = path.parent / file if file else path
    return not target.exists() or (section and section not in anchors(target))


def check_links(results, page):
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)) if "://" not in link]
    lost = [link for link in links if is_lost(page, link)]
    results.check(not lost, f"{page.relative_to(ROOT)}: links", f"  not there: {lost}")


def is_gone(page, word, names, folders):
    """Whether a word in code type is the name of a file or folder that is not there."""
    if PLACEHOLDER.search(word) or not re.fullmatch(r"[\w./*-]+", word):
        return False
    if "/" in word:
        top = word.removeprefix("../").split("/")[0]
        here = page.parent / word
        return top in folders and not (here.exists() or list(ROOT.glob(word.rstrip("/"))))
    return word.split(".")[-1] in SUFFIXES and "." in word[1:] and word not in names


def check_names(results, page, names):
    folders = {path.name for top in (ROOT, page.parent) for path in top.iterdir() if path.is_dir()}
    words = set(re.findall(r"`([^`]+)`", prose(page)))
    gone = sorted(word for word in words if is_gone(page, word, names, folders - {"build"}))
    results.check(not gone, f"{page.relative_to(ROOT)}: names of files", f"  not there: {gone}")


def check_references(results):
    man = ROOT / "man"
    for path in sorted(man.glob("*.[135]")):
        targets = re.findall(r"^\.Xr ((?:lib)?qplan\S*) (\d)", path.read_text(), re.M)
        lost = [f"{name}({n})" for name, n in targets if not (man / f"{name}.{n}").exists()]
        results.check(targets and not lost, f"{path.name}: references", f"  not there: {lost}")


# ---- README, examples and figures ----------------------------------------------------------------


def check_excerpts(results, readme):
    """Code in the README is a part of a file that tests run."""
    files = [path.read_text() for path in (ROOT / "examples").iterdir() if path.is_file()]
    for language, first, lines in pages.fences(readme.read_text()):
        if language in ("c", "python"):
            code = "\n".join(lines) + "\n"
            results.check(any(code in text for text in files), f"README.md:{first}: excerpt",
                          "  not a part of any file of examples/")


def check_examples_run(results):
    """No file lies in examples/ that nothing runs."""
    steps = [step.command for block in pages.blocks_of(ROOT / "examples" / "README.md")
             for step in block.steps]
    for path in (ROOT / "examples").iterdir():
        used = any(f"examples/{path.name}" in command for command in steps)
        results.check(used or path.name == "README.md", f"examples/{path.name}: is run",
                      "  no command of examples/README.md has it")


def table(text):
    """The lines of figures between the two comments of the benchmark, each split into cells."""
    inside = re.search(r"<!-- bench.*? -->\n(.*?)<!-- end of bench -->", text, re.S)[1]
    return [[cell.strip() for cell in line.strip("|").split("|")]
            for line in inside.splitlines() if re.match(r"\| .*\d", line)]


def check_figures(results, readme):
    """The figures of the README stand in bench/RESULTS.md: one run wrote both."""
    known = table((ROOT / "bench" / "RESULTS.md").read_text())
    brief = table(readme.read_text())
    results.check(len(brief) == 8, "README.md: rows of figures",
                  f"  expected 8, found {len(brief)}")
    for name, *cells in brief:
        figures = set(re.findall(r"\d[\d.]*", " ".join(cells)))
        found = any(name in row[0] and figures <= set(re.findall(r"\d[\d.]*", " ".join(row[1:])))
                    for row in known)
        results.check(found, f"README.md: figures of {name}", "  not those of bench/RESULTS.md")


def test(_, results):
    files = list(tree())
    names = {path.name for path in files}
    for page in sorted(path for path in files if path.suffix == ".md"):
        check_links(results, page)
        check_names(results, page, names)
    check_references(results)
    readme = ROOT / "README.md"
    n_lines = readme.read_text().count("\n")
    results.check(n_lines <= README_LINES, "README.md: length", f"  {n_lines} lines")
    check_excerpts(results, readme)
    check_examples_run(results)
    check_figures(results, readme)


def test_self(results):
    """Links and names that are there and that are not."""
    page = ROOT / "README.md"
    for link, lost in (("LICENSE", False), ("gone.md", True), ("#speed", False), ("#gone", True),
                       ("CONTRIBUTING.md#names", False), ("CONTRIBUTING.md#gone", True)):
        results.check(bool(is_lost(page, link)) == lost, f"planted link {link}")
    for word, gone in (("lib/qplan.h", False), ("lib/gone.c", True), ("kernels/*/fma.h", False),
                       ("kernels/*/gone.h", True), ("lib/NAME.c", False), ("qplan.h", False),
                       ("gone.h", True), ("model.safetensors", False), ("F32/F16", False)):
        results.check(is_gone(page, word, {"qplan.h"}, {"lib", "kernels"}) == gone,
                      f"planted name {word}")
