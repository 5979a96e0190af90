"""Pictures of sharded tensors: which worker holds which part."""

import html

from ._core.distributed import TensorStructInfo, show

_COLORS = ("#a6cee3", "#b2df8a", "#fdbf6f", "#cab2d6", "#fb9a99", "#ffff99", "#8dd3c7", "#d9d9d9")
_LONGEST, _SHORTEST = 480.0, 40.0  # pixels of the tensor's sides
_MARGIN = 56.0
_MOST_NAMED = 6


def _count(numbers):
    """Worker ids as text: '0-3, 8'."""
    runs = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = [str(begin) if begin == end else f"{begin}-{end}" for begin, end in runs]
    return ", ".join(texts[:_MOST_NAMED] + ["..."] * (len(texts) > _MOST_NAMED))


class Holders:
    """Who holds what of a DTensor. print() shows a table; svg() draws two axes, first those that are cut."""

    def __init__(self, info):
        self.info = info

    def rows(self):
        """(worker, place in the mesh, shape, offset, bytes), in the mesh's order."""
        mesh, tensor = self.info.device_mesh, self.info.tensor_sinfo
        for worker in mesh.device_ids:
            shape, offset = self.info.local(worker)
            yield worker, tuple(mesh.coordinate(worker)), tuple(shape), tuple(offset), TensorStructInfo(shape, tensor.dtype).nbytes

    def __repr__(self):
        return show(self.info).rstrip("\n")

    def _axes(self):
        """The axes drawn down and across: those where parts differ, then the others."""
        spans = [set() for _ in self.info.tensor_sinfo.shape]
        for _, _, shape, offset, _ in self.rows():
            for axis, span in enumerate(zip(offset, shape)):
                spans[axis].add(span)
        order = sorted(range(len(spans)), key=lambda axis: len(spans[axis]) < 2)
        chosen = sorted(order[:2])
        return [None] * (2 - len(chosen)) + chosen

    def _cells(self, axes):
        """{(begin, extent) down and across: [workers, ...]}: for each part that is not empty; several where parts differ in other axes only."""
        cells = {}
        for worker, _, shape, offset, size in self.rows():
            if size:
                spans = tuple((0, 1) if axis is None else (offset[axis], shape[axis]) for axis in axes)
                cells.setdefault(spans, {}).setdefault((shape, offset), []).append(worker)
        return {spans: list(parts.values()) for spans, parts in cells.items()}

    def svg(self):
        """An SVG picture, as text: cells of two axes, with the workers that hold them; "0 | 1": their parts differ in another axis."""
        axes = self._axes()
        shape = self.info.tensor_sinfo.shape
        extents = [1 if axis is None else max(shape[axis], 1) for axis in axes]
        scale = _LONGEST / max(extents)
        height, width = (max(extent * scale, _SHORTEST) for extent in extents)
        mark = "P of " if any(spec.op for spec in self.info.placement.dim_specs) else ""
        title = html.escape(f"{self.info.tensor_sinfo.dtype} {tuple(shape)} by '{self.info.placement}' on {self.info.device_mesh!r}")
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 2 * _MARGIN:.0f}" height="{height + 2 * _MARGIN:.0f}" '
            f'font-family="sans-serif" font-size="13">',
            f"<title>{title}</title>",
            f'<text x="{_MARGIN:.0f}" y="18">{title}</text>',
        ]
        for i, ((down, across), parts) in enumerate(sorted(self._cells(axes).items())):
            y, x = _MARGIN + down[0] * height / extents[0], _MARGIN + across[0] * width / extents[1]
            h, w = down[1] * height / extents[0], across[1] * width / extents[1]
            workers = " | ".join(map(_count, parts))
            told = [f"axis {axis}: [{begin}, {begin + extent})" for axis, (begin, extent) in zip(axes, (down, across)) if axis is not None]
            lines.append(f'<g><title>{", ".join([f"worker {workers}", *told])}</title>')
            lines.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" fill="{_COLORS[i % len(_COLORS)]}" stroke="#333"/>')
            lines.append(f'<text x="{x + w / 2:.1f}" y="{y + h / 2 + 5:.1f}" text-anchor="middle">{mark}{workers}</text></g>')
        for axis, extent, place in ((axes[0], extents[0], f'x="4" y="{_MARGIN + height / 2:.0f}" font-size="11"'), (axes[1], extents[1], f'x="{_MARGIN:.0f}" y="{_MARGIN - 8:.0f}"')):
            if axis is not None:
                lines.append(f"<text {place}>axis {axis}: {shape[axis]}</text>")
        lines.append("</svg>")
        return "\n".join(lines)

    def html(self):
        """A page of its own: the picture and the table."""
        return f'<!DOCTYPE html>\n<meta charset="utf-8">\n<title>{html.escape(str(self.info.placement))}</title>\n{self._repr_html_()}\n'

    def _repr_html_(self):
        def line(cells, tag):
            return "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

        columns = line(("worker", "place", "shape", "offset", "bytes"), "th")
        return f"{self.svg()}\n<table>{columns}{''.join(line(row, 'td') for row in self.rows())}</table>"

