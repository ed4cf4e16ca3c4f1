"""A small reader of PTX for the tests: entries, their instructions, and orders that every path must keep."""

from __future__ import annotations

import copy
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

_ENTRY = re.compile(r"\.visible \.entry (\w+)\(")
_LABEL = re.compile(r"^(\$?\w+):$")
_BRANCH = re.compile(r"^(?:@!?%p\d+ )?bra(?:\.uni)? (\$?\w+)$")


@dataclass(frozen=True)
class Instruction:
    """One instruction: its whole text, its opcode with all modifiers, and its operands as text."""

    text: str
    opcode: str
    operands: str

    def has(self, prefix: str) -> bool:
        """Whether the opcode is `prefix`, or `prefix` and further modifiers."""
        return self.opcode == prefix or self.opcode.startswith(prefix + ".")


class Entry:
    """One kernel: `instructions` in text order and, for each, the indices that may follow it."""

    def __init__(self, name: str, body: str) -> None:
        self.name = name
        self.body = body
        self.instructions: list[Instruction] = []
        labels: dict[str, int] = {}
        for statement in _statements(body):
            label = _LABEL.match(statement)
            if label:
                labels[label[1]] = len(self.instructions)
            elif not statement.startswith("."):
                self.instructions.append(_instruction(statement))
        self.successors = [self._after(index, labels) for index in range(len(self.instructions))]

    def _after(self, index: int, labels: dict[str, int]) -> tuple[int, ...]:
        text = self.instructions[index].text
        branch = _BRANCH.match(text)
        if text == "ret":
            return ()
        if branch is None:
            return (index + 1,)
        target = labels[branch[1]]
        return (target, index + 1) if text.startswith("@") else (target,)

    def without(self, index: int) -> Entry:
        """A copy in which one instruction does nothing."""
        entry = copy.copy(self)
        entry.instructions = list(self.instructions)
        entry.instructions[index] = Instruction("removed", "removed", "")
        return entry

    def find(self, prefix: str) -> list[int]:
        """Indices of the instructions whose opcode begins with `prefix`."""
        return [i for i, instruction in enumerate(self.instructions) if instruction.has(prefix)]

    def opcodes(self, prefix: str) -> list[str]:
        """Opcodes that begin with `prefix`, sorted."""
        return sorted(self.instructions[i].opcode for i in self.find(prefix))

    def reachable(self, start: int) -> set[int]:
        """Indices that some path from `start` reaches; conditions of branches are not looked at."""
        seen: set[int] = set()
        todo = list(self.successors[start])
        while todo:
            index = todo.pop()
            if index not in seen:
                seen.add(index)
                todo += self.successors[index]
        return seen

    def bypass(self, first: Sequence[int], last: str, between: Sequence[str]) -> str | None:
        """A path from one of the indices `first` to a `last` that lacks one of `between`, in this order, or None.

        Conditions of branches are not looked at, so a path may be one that no thread takes.
        """
        for start in first:
            queue = deque((after, 0) for after in self.successors[start])
            seen = set(queue)
            while queue:
                index, done = queue.popleft()
                instruction = self.instructions[index]
                if instruction.has(between[done]):
                    done += 1
                    if done == len(between):
                        continue
                elif instruction.has(last):
                    opcode = self.instructions[start].opcode
                    return f"{opcode} at {start} reaches {last} at {index} without {between[done]}"
                for step in self.successors[index]:
                    if (step, done) not in seen:
                        seen.add((step, done))
                        queue.append((step, done))
        return None


def _statements(body: str) -> list[str]:
    """Statements and labels in order; inline assembly's scopes are flattened."""
    lines = [line.split("//")[0] for line in body.splitlines()]
    text = re.sub(r"^\s*(\$?\w+):\s*$", r"\1: ;", "\n".join(lines), flags=re.MULTILINE)
    text = re.sub(r"\{(?=\s*\.reg)|;\s*\}", ";", text)
    parts = (" ".join(part.split()) for part in text.split(";"))
    return [part.rstrip(" }") if part.endswith(": }") else part for part in parts if part not in ("", "}")]


def _instruction(statement: str) -> Instruction:
    bare = re.sub(r"^@!?%?\w+ ", "", statement)
    opcode, _, operands = bare.partition(" ")
    return Instruction(statement, opcode, operands)


def entries(ptx: str) -> dict[str, Entry]:
    """The kernels of a PTX text by name."""
    out = {}
    for found in _ENTRY.finditer(ptx):
        start = ptx.index("\n{", found.end())
        end = ptx.index("\n}", start)
        out[found[1]] = Entry(found[1], ptx[start + 2 : end])
    return out
