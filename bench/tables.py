"""The figures of a run as text, as JSON and as tables for a document."""

import json
import os
import platform
import re
import statistics

import rates

RSS_GOAL_KIB, LAYOUT_RSS_GOAL_KIB, START_GOAL_MS = 32 << 10, 64 << 10, 10
MARKS = r"(<!-- bench(: brief)? -->\n).*?(<!-- end of bench -->\n)"
BRIEF = (("hot", "bf16 -> int8 per channel"), ("hot", "bf16 -> int4 g128"),
         ("hot", "bf16 -> int8 block 128x128"), ("hot", "dequantize int8"), ("hot", "verify int8"),
         ("hot", "copied only"), ("peers", "torch + safetensors, int8 per channel"),
         ("large", "20 GB -> int4 g128"))
BRIEF_HEAD = ["job", "against", "goal", "ratio", "wall s", "RSS MiB"]


def spread(values):
    """The distance between the extremes, in percent of the median."""
    return 100 * (max(values) - min(values)) / statistics.median(values)


def cpu_ratios(row):
    return [cpu / base for cpu, base in zip(row.cpu, row.base_cpu)]


def times(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values),
            "spread_percent": spread(values), "runs": values}


# ---- The machine ---------------------------------------------------------------------------------

def first_line(path, key):
    with open(path, encoding="utf-8") as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith(key)), "")


def machine():
    flags = first_line("/proc/cpuinfo", "flags").split()
    level = "AVX-512" if "avx512bw" in flags else "AVX2" if "avx2" in flags else "no AVX2"
    return {"cpu": first_line("/proc/cpuinfo", "model name") or platform.machine(),
            "family": first_line("/proc/cpuinfo", "cpu family"), "level": level,
            "cores": os.cpu_count(), "virtual": "hypervisor" in flags,
            "memory_gib": round(int(first_line("/proc/meminfo", "MemTotal").split()[0]) / 2**20),
            "system": "Linux " + ".".join(platform.release().split(".")[:2])}


def levels():
    """The levels of the section calibrate that this machine has."""
    flags = first_line("/proc/cpuinfo", "flags").split()
    return [level for level, flag in (("avx2", "avx2"), ("avx512", "avx512bw")) if flag in flags]


def machine_text():
    it = machine()
    family = f" family {it['family']}" if it["family"] else ""
    virtual = ", a virtual machine" if it["virtual"] else ""
    return (f"{it['cpu']}{family} ({it['level']}), {it['cores']} cores, {it['memory_gib']} GiB, "
            f"{it['system']}{virtual}")


def setting_text(bench):
    options = bench.options
    return (f"{options.size / 1e9:.2f} GB sources, {options.threads} threads, "
            f"{options.rounds} rounds")


# ---- JSON ----------------------------------------------------------------------------------------

def rates_of(bench):
    return [{"name": row.name, "unit": row.unit, "level": level, "goal": row.goals[level],
             "figure": row.figure(level, bench.rate_bytes), "cpu_seconds": times(row.seconds[level]),
             "base_cpu_seconds": times(row.less_seconds[level])}
            for row in bench.rates for level in row.seconds]


def as_json(bench):
    options = bench.options
    rows = [{"section": row.section, "name": row.name, "against": row.against, "goal": row.goal,
             "ratio": times(row.ratios), "seconds": times(row.seconds), "base": times(row.bases),
             "cpu_ratio": times(cpu_ratios(row)), "import_seconds": times(row.imports) if row.imports else None,
             "out_bytes": row.out_bytes, "rss_kib": row.rss} for row in bench.rows]
    start = {"goal_ms": START_GOAL_MS, "ms": times(bench.starts)} if bench.starts else None
    return json.dumps({"schema": "qplan-bench/2", "machine": machine(), "size": options.size,
                       "threads": options.threads, "rounds": options.rounds,
                       "block": options.block, "rss_goal_kib": RSS_GOAL_KIB, "rows": rows,
                       "rates": rates_of(bench), "start": start, "large": bench.large,
                       "skipped": bench.skipped})


# ---- Tables --------------------------------------------------------------------------------------

def cells(row):
    """A line: job, against, goal, ratios and extremes, wall, base, memory."""
    wall, base = row.seconds, row.bases
    name = row.name
    if row.imports:
        name += f" ({statistics.median(row.imports):.1f} s are imports)"
    return [name, row.against, f"{row.goal:.2f}" if row.goal else "-",
            f"{statistics.median(row.ratios):.2f}", f"{statistics.median(cpu_ratios(row)):.2f}",
            f"{min(row.ratios):.2f} .. {max(row.ratios):.2f}",
            f"{statistics.median(wall):.3f}", f"{min(wall):.3f}", f"{spread(wall):.0f} %",
            f"{statistics.median(base):.3f}", f"{min(base):.3f}", f"{spread(base):.0f} %",
            f"{row.rss / 1024:.0f}"]


HEAD = ["job", "against", "goal", "ratio", "CPU ratio", "from .. to", "wall s", "min", "spread",
        "against s", "min", "spread", "RSS MiB"]


RATE_HEAD = ["job", "level", "unit", "goal", "figure", "GB/s in all"]


def rate_cells(bench, row, level):
    goal, digits = row.goals[level], 1 if row.less else 2
    return [row.name, rates.LEVELS[level], row.unit, f"{goal:.{digits}f}" if goal else "-",
            f"{row.figure(level, bench.rate_bytes):.{digits}f}",
            f"{bench.rate_bytes / min(row.seconds[level]) / 1e9:.2f}"]


def sections(bench):
    """Title, heads and lines of every table."""
    for section, title in (("hot", "Files in memory"),
                           ("layouts", "Folders that engines load, in memory"),
                           ("cold", "Disk, caches dropped before each run, output synced"),
                           ("peers", "Peers, as multiples of qplan's time")):
        lines = [cells(row) for row in bench.rows if row.section == section]
        if lines:
            yield title, HEAD, lines
    lines = [rate_cells(bench, row, level) for row in bench.rates for level in row.seconds]
    if lines:
        yield "Calibration, a core", RATE_HEAD, lines
    lines = []
    if bench.starts:
        lines.append(["qplan --version, ms", f"{START_GOAL_MS}",
                      f"{statistics.median(bench.starts):.2f}",
                      f"{min(bench.starts):.2f} .. {max(bench.starts):.2f}"])
    model = [row.rss for row in bench.rows if row.section == "hot" and "{small}" not in row.command]
    if model:
        lines.append(["largest peak RSS above, a model's tensors, MiB", f"{RSS_GOAL_KIB >> 10}",
                      f"{max(model) / 1024:.1f}", ""])
    layouts = [row.rss for row in bench.rows if row.section == "layouts"]
    if layouts:
        lines.append(["largest peak RSS above, folders that engines load, MiB",
                      f"{LAYOUT_RSS_GOAL_KIB >> 10}", f"{max(layouts) / 1024:.1f}", ""])
    for row in bench.large:
        lines.append([f"peak RSS, {row['name']}, MiB", f"{RSS_GOAL_KIB >> 10}",
                      f"{row['rss_kib'] / 1024:.1f}", f"in {row['seconds']:.1f} s"])
    if lines:
        yield "Start and memory", ["what", "goal", "figure", ""], lines


def notes(bench):
    return [f"skipped: {item['name']}: {item['reason']}" for item in bench.skipped]


def as_text(bench):
    out = [machine_text(), setting_text(bench)]
    for title, head, lines in sections(bench):
        widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
        out += ["", title]
        for line in [head, *lines]:
            cols = [f"{cell:<{w}}" if i == 0 else f"{cell:>{w}}"
                    for i, (cell, w) in enumerate(zip(line, widths))]
            out.append("  ".join(cols).rstrip())
    return "\n".join([*out, "", *notes(bench)]).rstrip()


def markdown_table(head, lines):
    return ["| " + " | ".join(head) + " |", "|---" + "|--:" * (len(head) - 1) + "|",
            *["| " + " | ".join(line) + " |" for line in lines]]


def chosen(words, head, lines):
    """The columns of a table that have these words as heads."""
    return [[line[head.index(word)] for word in words] for line in lines]


def as_markdown(bench):
    out = [f"{machine_text()};", f"{setting_text(bench)}. Medians; `from .. to` are the extremes of "
           "the rounds' ratios."]
    for title, head, lines in sections(bench):
        if head is HEAD:  # minima and spread are in the text and the JSON
            words = [word for word in head if word not in ("min", "spread")]
            head, lines = words, chosen(words, HEAD, lines)
        out += ["", title + ":", "", *markdown_table(head, lines)]
    if bench.skipped:
        out += ["", *[f"- {note}" for note in notes(bench)]]
    return "\n".join(out)


def brief_markdown(bench):
    """The rows of the README; SystemExit if the run did not measure them all."""
    found = {(row.section, row.name): chosen(BRIEF_HEAD, HEAD, [cells(row)])[0]
             for row in bench.rows}
    for row in bench.large:
        found["large", row["name"]] = [row["name"], "-", "-", "-", f"{row['seconds']:.1f}",
                                       f"{row['rss_kib'] / 1024:.1f}"]
    missing = [f"{section}: {name}" for section, name in BRIEF if (section, name) not in found]
    if missing:
        raise SystemExit("no figures for the brief table: " + "; ".join(missing))
    return "\n".join([f"{machine_text()};", setting_text(bench) + ". Medians.", "",
                      *markdown_table(BRIEF_HEAD, [found[key] for key in BRIEF])])


def put_markdown(bench, path):
    """Replaces what stands between the two comments of a document."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    marks = re.findall(MARKS, text, re.S)
    if len(marks) != 1:
        raise SystemExit(f"{path}: expected one pair of comments 'bench', found {len(marks)}")
    begin, brief, end = marks[0]
    table = brief_markdown(bench) if brief else as_markdown(bench)
    with open(path, "w", encoding="utf-8") as file:
        file.write(re.sub(MARKS, lambda _: f"{begin}{table}\n{end}", text, flags=re.S))
