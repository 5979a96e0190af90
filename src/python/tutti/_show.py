"""What a session shows to people: its workers, how far it is."""

import html
import typing
import warnings

from ._errors import UsageError


class Workers:
    """Where the workers are: a table, in notebooks as HTML. `rows`: (worker, host, pid, device, GPU beside it, cores)."""

    columns = ("worker", "host", "pid", "device", "gpu", "cores")

    def __init__(self, title, rows):
        self.title, self.rows = title, rows

    def __repr__(self):
        lines = [self.columns, *([str(cell) for cell in row] for row in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        return "\n".join([self.title, *("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)])

    def _repr_html_(self):
        def line(cells, tag):
            return "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

        body = "".join(line(row, "td") for row in self.rows)
        return f"<table><caption>{html.escape(self.title)}</caption>{line(self.columns, 'th')}{body}</table>"


def show(self):
    """The workers: host, pid, device, the GPU that was chosen for them, the cores they may use. Waits for them; print it, or leave it to a notebook."""
    described = self._get_cached_method("tutti.describe_worker")()
    return Workers(repr(self), [(worker, *described.debug_get_from_remote(worker)) for worker in range(self.num_workers)])


class Place(typing.NamedTuple):
    """Where a worker runs."""

    host: str
    cpus: tuple  # that it may use
    is_bound: bool  # tutti has put it there; else it was left where it was
    gpu: str  # chosen for it: "cuda0"; "": none
    gpu_pci: str  # "0000:41:00.0"
    nic: str  # the network card nearest to that
    why: str  # of all this, in words; "": nobody has looked at the machine
    memory: tuple  # NUMA nodes that its memory comes from first; (): those beside the CPUs


def places(self):
    """Of the workers, in order. Waits for them."""
    described = self._get_cached_method("tutti.place")()
    return [Place(*described.debug_get_from_remote(worker)) for worker in range(self.num_workers)]


def _tqdm(what, **options):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # in a notebook without ipywidgets it is text
            from tqdm.auto import tqdm
    except ImportError:
        raise UsageError(f"{what}(progress=True) needs tqdm: apt-get install python3-tqdm, or pip install tqdm") from None
    return tqdm(**options)


class Bar:
    """Of sync_all(progress=True)."""

    def __init__(self, session):
        self.session = session
        issued, self.begun, _ = session._progress()
        self.bar = _tqdm("sync_all", total=issued - self.begun, unit=" commands")

    def update(self):
        _, finished, workers = self.session._progress()
        if len(workers) < self.session.num_workers:  # a node has not answered in time
            return
        slowest = min(workers, key=lambda worker: worker[3])
        self.bar.set_postfix_str(f"slowest: worker {slowest[0]} on {slowest[1]}, {slowest[4] or 'idle'}", refresh=False)
        self.bar.update(max(0, min(finished - self.begun, self.bar.total) - self.bar.n))

    def close(self):
        self.bar.set_postfix_str("", refresh=False)
        self.bar.update(self.bar.total - self.bar.n)
        self.bar.close()

    def leave(self):
        """As it stands: the wait has failed."""
        self.bar.close()


class BytesBar:
    """Of a save with progress=True."""

    def __init__(self, what, total):
        self.bar = _tqdm(what, total=total, unit="B", unit_scale=True, unit_divisor=1024)

    def update(self, written):
        self.bar.update(max(0, min(written, self.bar.total) - self.bar.n))

    def close(self):
        self.update(self.bar.total)
        self.bar.close()

    def leave(self):
        self.bar.close()
