// Text inside a paragraph: emphasis, code and links of Markdown. All of it becomes elements and text nodes.
//
// A text holds objects: elements, such as marks of decisions, that stand for one character each. `objects` has
// them by their places.

import { h } from "./dom.js";

const PUNCTUATION = /[!-/:-@[-`{-~]/;
const WORD = /[\p{L}\p{N}]/u;
const LINK = /^(https?:\/\/|mailto:)[^\s<>]+$/i;

// Text whose characters mean nothing but themselves may be added to the end of what was written before.
export const SPECIAL = /[\n`*_~[\]()!\\|]/;

// Appends `text` from `start` to `end` as it is. Returns the last text node, or null if an object is last.
export function appendPlain(parent, text, objects, start, end) {
  let last = null;
  let from = start;
  const write = (to) => {
    if (to <= from) return;
    last = document.createTextNode(text.slice(from, to));
    parent.append(last);
  };
  for (const place of objects.keys()) {
    if (place < start || place >= end) continue;
    write(place);
    parent.append(objects.get(place));
    last = null;
    from = place + 1;
  }
  write(end);
  return last;
}

export function appendInline(parent, text, objects, start = 0, end = text.length) {
  return new Scanner(text, objects).append(parent, start, end);
}

class Scanner {
  constructor(text, objects) {
    this.text = text;
    this.objects = objects;
  }

  // As `appendPlain`.
  append(parent, start, end) {
    const absent = new Set();  // what does not come again before `end`: nothing is searched twice
    let last = null;
    let from = start;
    let i = start;
    while (i < end) {
      const found = this.#at(i, end, absent);
      if (!found) {
        i += 1;
        continue;
      }
      last = appendPlain(parent, this.text, this.objects, from, i) ?? last;
      if (found.element) {
        parent.append(found.element);
        last = null;
      }
      from = i = found.end;
      if (!found.element) i += 1;  // an escaped character is no sign
    }
    return from < end ? appendPlain(parent, this.text, this.objects, from, end) : last;
  }

  // The element that begins at `i`, and where it ends; or the end of a backslash that escapes a character.
  #at(i, end, absent) {
    const sign = this.text[i];
    if (sign === "\\") return i + 1 < end && PUNCTUATION.test(this.text[i + 1]) ? { element: null, end: i + 1 } : null;
    if (sign === "`") return this.#code(i, end, absent);
    if (sign === "*" || sign === "_" || sign === "~") return this.#emphasis(sign, i, end, absent);
    if (sign === "[" || (sign === "!" && this.text[i + 1] === "[")) return this.#link(i, end, absent);
    return null;
  }

  #find(sign, from, end, absent) {
    if (absent.has(sign)) return -1;
    const found = this.text.indexOf(sign, from);
    if (found >= 0 && found + sign.length <= end) return found;
    absent.add(sign);
    return -1;
  }

  #run(i, end) {
    let length = 1;
    while (i + length < end && this.text[i + length] === this.text[i]) length += 1;
    return length;
  }

  #code(i, end, absent) {
    const length = this.#run(i, end);
    const fence = "`".repeat(length);
    let close = i;
    let from = i + length;
    do {
      close = this.#find(fence, from, end, absent);
      from = close + this.#run(Math.max(close, 0), end);
    } while (close >= 0 && from !== close + length);
    if (close < 0) return null;
    const element = h("code", {});
    appendPlain(element, this.text, this.objects, i + length, close);
    return { element, end: close + length };
  }

  #emphasis(sign, i, end, absent) {
    const { text } = this;
    const length = Math.min(this.#run(i, end), 2);
    if ((sign === "~" && length < 2) || /\s/.test(text[i + length] ?? " ")) return null;
    if (sign === "_" && WORD.test(text[i - 1] ?? "")) return null;
    const delimiter = sign.repeat(length);
    let close = this.#find(delimiter, i + length, end, absent);
    while (close >= 0) {
      const run = this.#run(close, end);
      const fits = run >= length && !(length === 1 && run === 2) && !/\s/.test(text[close - 1]) && close > i + length;
      if (fits && !(sign === "_" && WORD.test(text[close + run] ?? ""))) {
        close += run - length;  // of `***both***`, the inner sign comes first
        break;
      }
      close = this.#find(delimiter, close + run, end, absent);
    }
    if (close < 0) return null;
    const element = h(sign === "~" ? "del" : length === 2 ? "strong" : "em", {});
    this.append(element, i + length, close);
    return { element, end: close + length };
  }

  // A picture becomes a link: the page asks no other server for anything.
  #link(i, end, absent) {
    const label = this.text[i] === "!" ? i + 2 : i + 1;
    const middle = this.#find("](", label, end, absent);
    if (middle < 0 || this.text.slice(label, middle).includes("[")) return null;
    const close = this.#find(")", middle + 2, end, absent);
    if (close < 0) return null;
    const address = this.text.slice(middle + 2, close).trim().split(/\s+"/)[0];
    if (!LINK.test(address) || [...this.objects.keys()].some((place) => place > middle && place < close)) return null;
    const element = h("a", { href: address, title: address, target: "_blank", rel: "noopener noreferrer nofollow" });
    this.append(element, label, middle);
    if (!element.childNodes.length) element.append(address);
    return { element, end: close + 1 };
  }
}
