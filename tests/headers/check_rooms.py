#!/usr/bin/env python3
"""check_rooms.py SOURCE_DIR: includes go one way. A room is a folder of src/ or of src/control/, or launcher/; each may include the rooms
below it. Sources (NAME.h and NAME.cpp are one) that include each other in a circle are refused, too. No source of src/ has more than 350
lines, no folder more than 20 of them. No internal header puts names into the namespace of the API."""
import pathlib
import re
import sys

# room: the rooms that it may include, and theirs
BELOW = {
    "core": (),
    "device": ("core",),
    "topology": ("core",),
    "agreement": ("core",),
    "collective": ("agreement", "device"),
    "control/wire": ("collective", "topology"),
    "control/segment": ("control/wire",),
    "control/transfer": ("control/segment",),
    "control/watch": ("control/segment",),
    "control/worker": ("control/transfer", "control/watch"),
    "control/channel": ("control/worker",),
    "control/controller": ("control/channel",),
    "control": ("control/controller",),
    "module": ("control",),
    "program": ("control",),
    "distributed": ("control",),
    "checkpoint": ("distributed",),
    "trace": ("core",),
    "python": ("control", "checkpoint", "program"),
    "launcher": ("module", "trace", "checkpoint", "program"),
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
MOST_LINES, MOST_SOURCES = 350, 20
OF_THE_API = ("device/weak_tensor.h",)  # a class inside of Tensor

root = pathlib.Path(sys.argv[1])


def room_of(name):
    """Of a file in src/ or launcher/: the innermost room that it is in."""
    return max((room for room in BELOW if name.startswith(room + "/")), key=len, default=None)


def sources():
    for folder in (root / "src", root):
        for path in sorted(folder.rglob("*") if folder != root else (root / "launcher").rglob("*")):
            if path.suffix in (".h", ".cpp"):
                name = path.relative_to(folder)
                yield room_of(str(name)), path, name


def reachable(room):
    return {room}.union(*(reachable(below) for below in BELOW[room]))


def circles(edges):
    """The strongly connected components with more than one node (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for to in sorted(edges.get(node, ())):
            if to not in index:
                visit(to)
            if to in stack:
                low[node] = min(low[node], low[to])
        if low[node] == index[node]:
            part = [stack.pop()]
            while part[-1] != node:
                part.append(stack.pop())
            if len(part) > 1:
                found.append(sorted(part))

    sys.setrecursionlimit(10000)
    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


wrong, edges, folders = [], {}, {}
for room, path, name in sources():
    if room is None:
        wrong.append(f"{path.relative_to(root)} is in no room")
        continue
    unit = str(name.with_suffix(""))
    if room != "launcher":
        if path.suffix == ".cpp":
            folders.setdefault(path.parent, set()).add(unit)
        if (lines := path.read_text().count("\n")) > MOST_LINES:
            wrong.append(f"{path.relative_to(root)} has {lines} lines, more than {MOST_LINES}: which of its ideas is a file of its own?")
        if path.suffix == ".h" and str(name) not in OF_THE_API and re.search(r"^namespace tutti {", path.read_text(), re.MULTILINE):
            wrong.append(f"{path.relative_to(root)} is internal: its namespace is tutti::detail or its room's, not tutti, which is the API's")
    for included in INCLUDE.findall(path.read_text()):
        if (root / "launcher" / included).exists():
            included = "launcher/" + included
        elif included.startswith(".") or (root / "src" / included).exists() and not room_of(included):
            wrong.append(f"{path.relative_to(root)} includes {included}, which is in no room")
        to = room_of(included)
        if to is None:
            continue  # public headers, generated ones
        if to not in reachable(room):
            wrong.append(f"{path.relative_to(root)} includes {included}: {room} may include {', '.join(sorted(reachable(room)))}")
        edges.setdefault(unit, set()).add(str(pathlib.PurePath(included).with_suffix("")))
        edges[unit].discard(unit)
wrong += [
    f"{folder.relative_to(root)} has {len(units)} sources, more than {MOST_SOURCES}"
    for folder, units in folders.items()
    if len(units) > MOST_SOURCES
]
for circle in circles(edges):
    wrong.append("a circle of includes: " + ", ".join(circle))
print("\n".join(wrong) if wrong else "includes go one way between rooms")
sys.exit(bool(wrong))
