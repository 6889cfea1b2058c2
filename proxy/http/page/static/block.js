// The delivered text of one channel, and the marks that belong in it. No DOM.
//
// A mark stands where its decision's text stands in the delivered text. Hooks behind the one that decided may move
// that place until the text there is delivered, so it is found anew with each piece.

import { Places } from "./places.js";

export class Block {
  constructor(view) {
    this.view = view;
    this.pieces = [];
    this.length = 0;  // characters (code points), as the server counts them
    this.places = new Places();
    this.waiting = [];  // marks of text that is still to come: {decision, start, end, floor}, and `at` and `to`
    this.open = null;  // the one of them that covers the text which arrives now, with its mark
    this.held = new Map();  // characters, by hook
    this.isBegun = false;  // of a tool call: the client has got a part of it
  }

  get text() {
    return this.pieces.join("");
  }

  append(text) {
    if (!text) return;
    this.pieces.push(text);
    this.#locate();
    for (let rest = text; rest; ) {
      if (this.waiting[0]?.at <= this.length) {
        this.#begin(this.waiting.shift());
        continue;
      }
      const stop = Math.min(this.open?.to ?? Infinity, this.waiting[0]?.at ?? Infinity);
      const [piece, after] = cut(rest, stop - this.length);
      if (this.open) this.view.cover(this.open.mark, piece);
      else this.view.text(piece);
      this.length += count(piece);
      if (this.open?.to <= this.length) this.open = null;
      rest = after;
    }
    this.#placeSigns();
    this.places.settle(this.length);
  }

  decide(decision) {
    const { hook_index: hook = 0, offset, num_withheld: withheld, num_released: released } = decision;
    const isShadow = decision.mode === "shadow";
    const start = this.places.released(hook, offset);
    const isPast = this.places.delivered(start) < this.length;
    const num = coveredBy(decision, isPast);
    const end = num ? { ...start, place: start.place + num } : null;
    if (isShadow) { /* it changes nothing */ }
    else if (CHANGES.has(decision.action)) this.places.change(hook, offset, offset + withheld, released);
    else if (decision.action === "terminate") this.places.change(hook, offset, Infinity, 0);
    else if (decision.action === "rewind") this.#rewind({ hook, place: offset });
    this.waiting.push({ decision, start, end, floor: this.length });
    this.#locate();
    this.#placeSigns();
  }

  hold({ hook, num_held: num }) {
    if (num) this.held.set(hook, num);
    else this.held.delete(hook);
    // Each hook sees what the one before it released, so their held texts follow each other.
    const total = [...this.held.values()].reduce((sum, one) => sum + one, 0);
    this.view.held(total ? { num: total, hooks: [...this.held.keys()] } : null);
  }

  end() {
    this.view.held(null);
    this.open = null;
    this.#locate();
    for (const { decision } of this.waiting.splice(0)) this.view.mark(decision, false);
  }

  // Find out where the waiting marks stand now: a hook behind theirs may have changed what is before them.
  #locate() {
    for (const one of this.waiting) {
      one.at = Math.max(one.floor, this.length, this.places.delivered(one.start));
      one.to = Math.max(one.at, one.end ? this.places.delivered(one.end, true) : 0);
    }
    if (this.open) this.open.to = Math.max(this.length, this.places.delivered(this.open.end, true));
    if (this.open?.to === this.length) this.open = null;
    this.#sort();
  }

  // Signs stand before the text that a mark covers; a mark inside another one before that one.
  #sort() {
    this.waiting.sort((a, b) => a.at - b.at || a.to - b.to);
  }

  // A mark begins here, perhaps inside of another one, which goes on behind it.
  #begin(one) {
    const { open } = this;
    if (open && one.to > one.at && (open.at === one.at || one.to > open.to)) this.#wait(one, open.to);
    else {
      if (open) this.#wait(open, one.to);
      this.#place(one);
    }
  }

  #wait(one, floor) {
    if (one === this.open && one.to <= floor) return;
    one.floor = one.at = floor;
    one.to = Math.max(floor, one.to);
    this.waiting.push(one);
    this.#sort();
  }

  #place(one) {
    const covers = one.to > this.length;
    one.mark = this.view.mark(one.decision, covers);
    this.open = covers ? one : null;
  }

  // Marks that cover text wait for it.
  #placeSigns() {
    while (!this.open && this.waiting[0]?.to <= this.length) this.#place(this.waiting.shift());
  }

  // What the hooks before this one decided about the withheld text stands where the engine goes on.
  #rewind(to) {
    for (const one of this.waiting) if (this.places.isBehind(one.start, to)) Object.assign(one, { start: to, end: null });
    this.places.rewind(to);
  }
}

const CHANGES = new Set(["redact", "rewrite", "suppress", "restore"]);
const REPLACES = new Set(["redact", "rewrite", "restore"]);

// How many characters that are still to come a mark covers: those of a replacement, or those that a hook in
// shadow mode would have withheld.
function coveredBy({ action, mode, num_released: released, num_withheld: withheld }, isPast) {
  if (!REPLACES.has(action)) return 0;
  if (mode !== "shadow") return released ?? 0;
  return isPast ? 0 : withheld;
}

const SURROGATE = /[\ud800-\udfff]/;

export function count(text) {
  return SURROGATE.test(text) ? Array.from(text).length : text.length;
}

// The first `number` characters, and the rest.
export function cut(text, number) {
  if (number >= text.length) return [text, ""];
  if (!SURROGATE.test(text)) return [text.slice(0, number), text.slice(number)];
  const characters = Array.from(text);
  return [characters.slice(0, number).join(""), characters.slice(number).join("")];
}
