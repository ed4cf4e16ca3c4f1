"""Traces: what happened to tensor memory, barriers and asynchronous copies, as text and as a picture."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .result import Instruction

#: Groups of opcodes, by their beginnings; the first that fits.
GROUPS = {
    "mma": ("tcgen05.mma",),
    "commit": ("tcgen05.commit",),
    "copy": ("tcgen05.cp", "cp.", "st.async", "red.async"),
    "tensor memory": ("tcgen05.",),
    "barrier": ("mbarrier.", "bar.", "barrier."),
}
_COLORS = {
    "mma": "tab:red",
    "commit": "tab:purple",
    "copy": "tab:blue",
    "tensor memory": "tab:orange",
    "barrier": "tab:green",
    "other": "tab:gray",
}


@dataclass(frozen=True)
class Event:
    """One event. Times count warp instructions as if all warps of a cluster issued side by side."""

    #: "instruction": from its first try to its end, so what lies between is waiting. "effect": asynchronous work, from
    #: its issue to its effect. "mbarrier": a change of an mbarrier object.
    kind: str
    start: int
    #: None: it never ended (the launch failed before).
    end: int | None
    #: CTA and warp that executed the instruction, or issued the work, or changed the mbarrier.
    cta: tuple[int, int, int]
    warp: int
    #: One bit per lane.
    lanes: int
    instruction: Instruction
    #: What it acts on: tensor memory addresses, shared addresses, sizes, the state of an mbarrier after the change.
    notes: dict[str, int]
    #: CTA of the mbarrier.
    owner: tuple[int, int, int] | None = None

    @property
    def group(self) -> str:
        """Which of `GROUPS` the opcode belongs to, or "other"."""
        opcode = self.instruction.opcode
        return next((g for g, roots in GROUPS.items() if opcode.startswith(roots)), "other")

    def __str__(self) -> str:
        time = f"{self.start:>8} {'-' if self.end is None else self.end:>8}"
        who = f"CTA {','.join(map(str, self.cta))} warp {self.warp}"
        notes = " ".join(f"{k}={v if k in _DECIMAL else hex(v)}" for k, v in self.notes.items())
        what = f"{self.instruction.opcode} (line {self.instruction.line})"
        if self.kind == "mbarrier":
            assert self.owner is not None
            what = f"mbarrier of CTA {','.join(map(str, self.owner))}, by {what}"
        elif self.kind == "effect":
            what = f"effect of {what}"
        return f"{time}  {who:<22} {what}  {notes}".rstrip()


_DECIMAL = {
    *("columns", "column", "CTAs", "accumulate", "quarter", "bytes", "rank", "barrier", "threads"),
    *("completed", "phase", "pending", "tx"),
}


class Trace(Sequence[Event]):
    """The events of a launch, cluster by cluster, in their order."""

    def __init__(self, events: Sequence[Event], truncated: bool) -> None:
        self._events = list(events)
        #: True if events are missing because there were too many.
        self.truncated = truncated

    @classmethod
    def of(cls, sink: Any, instructions: Sequence[Instruction]) -> Trace:
        events = [
            Event(
                kind,
                start,
                end,
                cta,
                warp,
                lanes,
                instructions[i],
                notes,
                owner if kind == "mbarrier" else None,
            )
            for kind, start, end, cta, owner, warp, i, lanes, notes in sink.events()
        ]
        return cls(events, sink.truncated())

    def __len__(self) -> int:
        return len(self._events)

    def __getitem__(self, index: Any) -> Any:
        return self._events[index]

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    def text(self, limit: int | None = None) -> str:
        """One line per event, the first `limit` of them: start, end, CTA, warp, what, and what it acts on."""
        shown = self._events if limit is None else self._events[:limit]
        lines = [f"{'start':>8} {'end':>8}", *map(str, shown)]
        left = len(self._events) - len(shown)
        if left:
            lines.append(f"... {left} more events")
        if self.truncated:
            lines.append("... later events were not recorded")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()

    def timeline(self, cta: tuple[int, int, int] | None = None) -> Figure:
        """A picture for notebooks: per CTA a row for each warp, for tensor core and copies in flight, and per mbarrier.

        Light bars are waits, dark ones executed instructions or work in flight; the strokes of an mbarrier are
        completed phases. `cta` picks one. Needs matplotlib.
        """
        try:
            from matplotlib.patches import Patch
        except ImportError as error:
            raise ImportError("Trace.timeline needs matplotlib") from error
        rows: dict[tuple[Any, ...], list[Event]] = {}
        for e in self._events:
            if cta is None or cta in (e.cta, e.owner):
                rows.setdefault(_row(e), []).append(e)
        last = max((e.end or e.start for e in self._events), default=0) + 1
        figure = _new_figure(figsize=(12, 1 + 0.3 * max(1, len(rows))), layout="constrained")
        axes = figure.add_subplot()
        labels = []
        for y, key in enumerate(sorted(rows)):
            labels.append(f"CTA {','.join(map(str, key[0]))} {key[2]}")
            for e in rows[key]:
                _draw(axes, y, e, last)
        axes.set_yticks(range(len(labels)), labels, fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel("warp instructions")
        used = {e.group for events in rows.values() for e in events}
        axes.legend(
            handles=[Patch(color=c, label=g) for g, c in _COLORS.items() if g in used],
            loc="upper left",
            bbox_to_anchor=(1, 1),
        )
        return figure


def _new_figure(**options: Any) -> Figure:
    """A figure that notebooks show whether or not pyplot is in use."""
    from matplotlib.figure import Figure

    class Timeline(Figure):
        def _repr_png_(self) -> bytes:
            out = io.BytesIO()
            self.savefig(out, format="png")
            return out.getvalue()

    return Timeline(**options)


def _row(e: Event) -> tuple[Any, ...]:
    """CTA, order within it, label."""
    if e.kind == "mbarrier":
        return e.owner, (2, e.notes["address"]), f"mbarrier {e.notes['address']:#x}"
    if e.kind == "effect":
        tensor = e.instruction.opcode.startswith("tcgen05.")
        return e.cta, (1, int(not tensor)), "tensor core" if tensor else "copies"
    return e.cta, (0, e.warp), f"warp {e.warp}"


def _draw(axes: Any, y: int, e: Event, last: int) -> None:
    color = _COLORS[e.group]
    end = last if e.end is None else e.end
    if e.kind == "mbarrier":
        if e.notes["completed"]:
            axes.plot([e.start, e.start], [y - 0.4, y + 0.4], color=color, linewidth=1.5)
    elif e.kind == "effect":
        axes.barh(y, max(end - e.start, 1), left=e.start, height=0.6, color=color, alpha=0.5)
    else:
        axes.barh(y, end - e.start, left=e.start, height=0.6, color=color, alpha=0.25)
        if e.end is not None:
            axes.barh(y, 1, left=end, height=0.6, color=color)
