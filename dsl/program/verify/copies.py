"""Buffers with slots: an entry is there when it is read, and has left before another takes its place."""

from __future__ import annotations

from typing import Literal

from ...model.facts import STEP
from ...records import frozen
from .. import ir as p
from .paths import Automaton, Fault, Moment, Parts
from .reach import Touched

type Owner = tuple[p.ArrayRef, int]  # a copy, and which of its entries


@frozen
class Slot:
    """What a slot holds, and what has been done to it; `changed`: written and not yet saved."""

    owner: Owner | None = None
    status: Literal["empty", "coming", "there", "changed"] = "empty"


@frozen
class Copies:
    """`runs` counts the layers so far that ran each copy's part; `saves` are under way, from slots of copies."""

    runs: tuple[tuple[p.ArrayRef, int], ...]
    slots: tuple[Slot, ...]
    saves: tuple[tuple[p.ArrayRef, int, int], ...] = ()  # copy, its slot, the entry

    def count(self, copy: p.ArrayRef) -> int:
        """Of a copy's part, the runs so far."""
        return next(count for name, count in self.runs if name == copy)

    def put(self, at: int, slot: Slot) -> Copies:
        """With another slot."""
        return Copies(self.runs, (*self.slots[:at], slot, *self.slots[at + 1 :]), self.saves)


def copies_machine(program: p.Program, buffer: p.BufferRef, touched: Touched) -> Automaton[Copies]:
    """`touched` are all ops' buffers, by the op's path."""
    own = {copy.name: copy for copy in program.copies.values() if copy.buffer == buffer}
    held = program.copies.get(buffer) if isinstance(buffer, p.ArrayRef) else None  # readers name the buffer
    room = program.buffers[buffer].shape[0]

    def runs(copy: p.Copy, ahead: bool, state: Copies, op: p.Op, at: Moment) -> int | None:
        """The entry that an op means, or none where that layer does not run the part."""
        if program.is_step(copy.part):
            return mine(copy, op, state, at)[0]
        if at.place == copy.part and not ahead:
            return state.count(copy.name)
        if at.end and ahead:
            raise Fault("E224", f"after the last layer there is no next one to load `{copy.name}` for", op)
        layer = at.following if ahead else at.now
        if layer is None or copy.part not in layer:
            return None
        return state.count(copy.name) + (ahead and copy.part in (at.now or ()))

    def mine(copy: p.Copy, op: p.Op, state: Copies, at: Moment) -> tuple[int, int]:
        """The entry of this layer, and its slot."""
        moves = isinstance(op, p.CopyStart | p.CopyWait | p.StoreStart) or copy.slots > 1
        if at.place != (copy.part or STEP) and (not program.is_step(copy.part) or moves):
            raise Fault("E220", f"`{at.place}` uses `{copy.name}`, of which it has no entry", op)
        entry = state.count(copy.name) if not program.is_step(copy.part) else 0
        return entry, slot_of(copy, entry, op)

    def slot_of(copy: p.Copy, entry: int, op: p.Op) -> int:
        slot = entry % copy.slots
        if slot >= room:
            raise Fault("E221", f"slot {slot} of `{copy.name}` lies beyond its buffer", op, slot)
        return slot

    def leaving(slot: int, state: Copies) -> p.ArrayRef | None:
        return next((name for name, at, _ in state.saves if at == slot), None)

    def load(state: Copies, op: p.CopyStart, at: Moment) -> Copies:
        copy = own[op.copy]
        entry = runs(copy, op.ahead, state, op, at)
        if entry is None:
            return state
        slot = slot_of(copy, entry, op)
        if state.slots[slot].status == "coming":
            raise Fault("E221", f"`{copy.name}` is loaded into slot {slot} while another load fills it", op, slot)
        if leaving(slot, state) is not None:
            raise Fault("E221", f"`{copy.name}` is loaded into slot {slot} while it is still being saved", op, slot)
        if state.slots[slot].status == "changed":
            raise Fault("E221", f"`{copy.name}` is loaded into slot {slot}, whose entry was not saved", op, slot)
        at.say(slot, op, f"the load of `{copy.name}` into slot {slot} starts", begins=True)
        return state.put(slot, Slot((copy.name, entry), "coming"))

    def loaded(state: Copies, op: p.CopyWait, at: Moment) -> Copies:
        copy = own[op.copy]
        entry, slot = mine(copy, op, state, at)
        now = state.slots[slot]
        if now.status == "coming" and now.owner == (copy.name, entry):
            at.say(slot, op, f"`{copy.name}` in slot {slot} is waited for")
            return state.put(slot, Slot(now.owner, "there"))
        if now.owner == (copy.name, entry):
            raise Fault("E222", f"the load of `{copy.name}` into slot {slot} is waited for twice", op, slot)
        if now.status == "coming":
            raise Fault("E223", f"`{copy.name}` waits for slot {slot}, into which another entry is coming", op, slot)
        raise Fault("E224", f"`{copy.name}` waits for a load into slot {slot} that never starts", op, slot)

    def save(state: Copies, op: p.StoreStart, at: Moment) -> Copies:
        copy = own[op.copy]
        entry, slot = mine(copy, op, state, at)
        present(state, op, copy, entry, slot, "save")
        if any(each[:2] == (copy.name, slot) for each in state.saves):
            raise Fault(
                "E222", f"`{copy.name}` is saved from slot {slot} again before its save was waited for", op, slot
            )
        at.say(slot, op, f"the save of `{copy.name}` from slot {slot} starts", begins=True)
        state = state.put(slot, Slot(state.slots[slot].owner, "there"))
        return Copies(
            state.runs,
            state.slots,
            tuple(sorted((*state.saves, (copy.name, slot, entry)), key=lambda save: (save[0].label, *save[1:]))),
        )

    def present(state: Copies, op: p.Op, copy: p.Copy, entry: int, slot: int, does: str) -> None:
        now = state.slots[slot]
        what = f"the {does} of slot {slot} of `{copy.name}`"
        if now.owner == (copy.name, entry):
            if now.status == "coming":
                raise Fault("E220", f"{what} does not wait for its load", op, slot)
            return
        if now.owner is not None and now.owner[0] == copy.name and now.owner[1] > entry:
            raise Fault("E221", f"{what} comes after the load for a later layer", op, slot)
        raise Fault("E220", f"{what} finds nothing of this layer there", op, slot)

    def saved(state: Copies, op: p.StoreWait, at: Moment) -> Copies:
        copy = own[op.copy]
        if op.all_:
            if not at.end:
                raise Fault("E224", f"`{copy.name}` waits for the last saves before the layers are over", op)
            done = state.count(copy.name)
            for entry in range(max(0, done - copy.slots), done):
                state = _left(state, copy, entry, op, at)
            return state
        next_ = runs(copy, op.ahead, state, op, at)
        if next_ is None or next_ < copy.slots:
            return state
        return _left(state, copy, next_ - copy.slots, op, at)

    def use(state: Copies, op: p.Op, at: Moment) -> Copies:
        made = touched[at.path]
        if held is None:
            return state
        entry, slot = mine(held, op, state, at)
        if buffer in made.reads or buffer in made.updates:
            present(state, op, held, entry, slot, "read")
            at.say(slot, op, f"slot {slot} of `{held.name}` is read")
        if buffer in made.updates or buffer in made.writes:
            if leaving(slot, state) is not None:
                raise Fault("E221", f"slot {slot} of `{held.name}` is written while it is still being saved", op, slot)
            if state.slots[slot].status == "coming":
                raise Fault("E221", f"slot {slot} of `{held.name}` is written while a load fills it", op, slot)
            if state.slots[slot].status == "changed" and state.slots[slot].owner != (held.name, entry):
                raise Fault("E221", f"slot {slot} of `{held.name}` is written, whose entry was not saved", op, slot)
            at.say(slot, op, f"slot {slot} of `{held.name}` is written")
            state = state.put(slot, Slot((held.name, entry), "changed"))
        return state

    def step(state: Copies, op: p.Op, at: Moment) -> Copies:
        match op:
            case p.CopyStart():
                return load(state, op, at)
            case p.CopyWait():
                return loaded(state, op, at)
            case p.StoreStart():
                return save(state, op, at)
            case p.StoreWait():
                return saved(state, op, at)
        return use(state, op, at)

    def finish(state: Copies) -> None:
        for slot, now in enumerate(state.slots):
            if now.status == "coming":
                raise Fault("E222", f"a load into slot {slot} of `{buffer}` is never waited for", None, slot)
            if now.status == "changed":
                raise Fault("E222", f"slot {slot} of `{buffer}` is never saved", None, slot)
        for name, slot, _ in state.saves:
            raise Fault("E222", f"a save of `{name}` from slot {slot} is never waited for", None, slot)

    def turn(state: Copies, parts: Parts) -> Copies:
        return _turned(state, own, parts)

    begin = Copies(tuple((name, 0) for name in own), (Slot(),) * room)
    return Automaton(begin, step, turn, finish=finish)


def _left(state: Copies, copy: p.Copy, entry: int, op: p.Op, at: Moment) -> Copies:
    """After a wait for the save of an entry."""
    slot = entry % copy.slots
    found = next((each for each in state.saves if each[:2] == (copy.name, slot)), None)
    if found is None:
        raise Fault("E224", f"`{copy.name}` waits for a save from slot {slot} that is not under way", op, slot)
    if found[2] != entry:
        raise Fault("E223", f"`{copy.name}` waits for slot {slot}, from which another entry is leaving", op, slot)
    at.say(slot, op, f"the save of `{copy.name}` from slot {slot} is waited for")
    return Copies(state.runs, state.slots, tuple(each for each in state.saves if each != found))


def _turned(state: Copies, own: dict[p.ArrayRef, p.Copy], parts: Parts) -> Copies:
    """A layer later; entries are counted from a multiple of the slots, so that there are few states."""
    if not any(copy.part in parts for copy in own.values()):
        return state
    counts = {name: count + (own[name].part in parts) for name, count in state.runs}
    back = {name: max(0, count // own[name].slots - 1) * own[name].slots for name, count in counts.items()}
    if not any(back.values()):
        return Copies(tuple(counts.items()), state.slots, state.saves)
    slots = tuple(slot if slot.owner is None else Slot(_older(slot.owner, back), slot.status) for slot in state.slots)
    saves = tuple((name, slot, max(-1, entry - back[name])) for name, slot, entry in state.saves)
    return Copies(tuple((name, count - back[name]) for name, count in counts.items()), slots, saves)


def _older(owner: Owner, back: dict[p.ArrayRef, int]) -> Owner:
    return owner[0], max(-1, owner[1] - back[owner[0]])
