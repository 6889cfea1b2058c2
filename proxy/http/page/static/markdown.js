// A text of a model as it streams: Markdown, whose last part is written anew when more of it comes.
//
// What comes before the last blank line, or before a line's end in a long text, is final. Marks of decisions
// stand in the text as objects (`inline.js`), so that they stay where they are, also in code.

import { copyButton } from "./copy.js";
import { h } from "./dom.js";
import { SPECIAL, appendInline, appendPlain } from "./inline.js";

// A browser lays a paragraph out as a whole, so a long text becomes several.
const LONG = 2000;
const LONGEST = 12000;
// The first characters of a line may say what it is.
const LINE_START = 14;
const OBJECT = "\ufffc";

const FENCE = /^( *)(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6}) +(.*)$/;
const RULE = /^ {0,3}([-*_])(?: *\1){2,} *$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])( +|$)/;
const DELIMITERS = /^ *\|? *:?-+:? *(\| *:?-+:? *)*\|? *$/;

export class StreamedText {
  // `level`: the level of the heading above the text. `isPlain`: it is no Markdown.
  constructor(root, { level = 2, isPlain = false } = {}) {
    this.root = root;
    this.isPlain = isPlain;
    this.source = "";  // what is not final
    this.objects = new Map();
    this.before = new Blocks(root, level);  // the state behind what is final
    this.drawn = null;  // the blocks of `source`, as they are drawn
    this.isStale = false;  // `source` has more than is drawn
  }

  // `draw` shows it.
  append(text) {
    if (this.#isSimple(text)) {
      this.source += text;
      this.drawn.last.appendData(text);
      return;
    }
    this.isStale = true;
    for (let from = 0; from < text.length; ) {
      const to = whole(text, from + LONG);
      this.source += text.slice(from, to);
      this.#settle();
      from = to;
    }
  }

  // An element in the place of one character. `draw` shows it.
  insert(element) {
    this.objects.set(this.source.length, element);
    this.source += OBJECT;
    this.isStale = true;
  }

  draw() {
    if (!this.isStale) return;
    this.isStale = false;
    const focused = document.activeElement;
    const hadFocus = [...this.objects.values()].includes(focused);
    this.#erase();
    this.drawn = this.before.copy();
    this.drawn.draw(this.source, this.objects, this.isPlain);
    if (hadFocus) focused.focus({ preventScroll: true });
  }

  // The element that the text's end stands in.
  get end() { return this.drawn?.end ?? this.before.end; }

  #isSimple(text) {
    if (this.isStale || !this.drawn?.last || SPECIAL.test(text) || this.source.length + text.length > LONG) return false;
    if (SPECIAL.test(this.source.at(-1))) return false;  // what it says may depend on the next character
    return this.isPlain || this.source.length - this.source.lastIndexOf("\n") > LINE_START;
  }

  // Make final what nothing that comes can change, and what is too long to be drawn again and again.
  #settle() {
    const blank = this.isPlain ? -1 : this.source.lastIndexOf("\n\n");
    if (blank >= 0) this.#finish(blank + 2);
    if (this.source.length <= LONG) return;
    const line = this.source.lastIndexOf("\n") + 1;
    if (line) this.#finish(line);
    else if (this.source.length > LONGEST) this.#finish(wordEnd(this.source, LONGEST));
  }

  #finish(length) {
    this.#erase();
    this.before.draw(this.source.slice(0, length), this.objects, this.isPlain);
    this.before.rest();
    this.source = this.source.slice(length);
    this.objects = new Map([...this.objects].filter(([place]) => place >= length).map(([place, one]) => [place - length, one]));
  }

  #erase() {
    for (const node of this.drawn?.added ?? []) node.remove();
    this.drawn = null;
  }
}

// Draws lines as blocks. A copy goes on where the first one is, and its nodes can be removed again.
class Blocks {
  constructor(root, level) {
    this.root = root;
    this.base = this.level = level;
    this.lists = [];  // {indent, type, element, item}: those that are open, the outer ones first
    this.code = null;  // {fence, element}
    this.table = null;  // its body
    this.leaf = null;  // {element, ranges}: lines that are one text
    this.goesOn = false;
    this.added = [];
    this.last = null;  // the text node at the end
    this.end = root;
  }

  copy() {
    const copy = Object.assign(new Blocks(this.root, this.base), this, { added: [], last: null });
    copy.lists = this.lists.map((one) => ({ ...one }));
    return copy;
  }

  // What was drawn stays.
  rest() {
    this.added = [];
    this.leaf = this.last = null;
  }

  draw(source, objects, isPlain) {
    this.source = source;
    this.objects = objects;
    for (let start = 0; start < source.length; ) {
      const newline = isPlain ? -1 : source.indexOf("\n", start);
      const end = newline < 0 ? source.length : newline;
      if (isPlain) this.#extend(start, end);
      else this.#line(source.slice(start, end), start, end, newline >= 0);
      start = end + 1;
    }
    if (this.leaf) {
      if (source.length > LONG / 2) this.leaf.element.classList.add("long");
      this.#close(source.endsWith("\n") ? "\n" : "", isPlain);
      this.goesOn = true;
    }
  }

  #line(line, start, end, isWhole) {
    if (this.code) {
      this.#codeLine(line, start, isWhole ? end + 1 : end);
      return;
    }
    if (!line.trim()) {
      this.#close();
      this.table = null;
      this.goesOn = false;
      return;
    }
    const fence = FENCE.exec(line);
    const heading = HEADING.exec(line);
    const isRule = RULE.test(line);
    const item = isRule ? null : ITEM.exec(line);
    if (fence || heading || isRule || item) this.goesOn = false;
    if (fence) this.#openCode(fence, line);
    else if (heading) this.#heading(heading, end);
    else if (isRule) { this.#close(); this.lists = []; this.#add(this.root, h("hr")); }
    else if (item) this.#item(item, start, end);
    else if (this.#isDelimiters(line)) this.#openTable();
    else if (this.table && line.includes("|")) this.#row(this.table, "td", start, end);
    else this.#text(line, start, end);
  }

  #add(parent, element) {
    parent.append(element);
    if (parent === this.root || !this.added.some((one) => one.contains(parent))) this.added.push(element);
    this.end = element;
    this.last = null;
    return element;
  }

  #extend(start, end) {
    this.leaf ??= { element: this.#paragraph(this.root), ranges: [] };
    this.leaf.ranges.push([start, end]);
  }

  #paragraph(parent) {
    return this.#add(parent, h("div", { class: this.goesOn ? "paragraph on" : "paragraph", dir: "auto" }));
  }

  #text(line, start, end) {
    this.table = null;
    const quote = QUOTE.exec(line);
    if (quote && this.leaf?.element.tagName !== "BLOCKQUOTE") {
      this.#close();
      this.leaf = { element: this.#add(this.#holder(line), h("blockquote", { dir: "auto" })), ranges: [] };
    } else if (!this.leaf) {
      this.leaf = { element: this.#paragraph(this.goesOn ? this.lists.at(-1)?.item ?? this.root : this.#holder(line)), ranges: [] };
    }
    this.goesOn = false;
    const indent = this.lists.length ? /^ */.exec(line)[0].length : 0;
    this.leaf.ranges.push([start + (quote ? quote[0].length : indent), end]);
  }

  // The item that an indented line belongs to, or the text itself. It ends the lists that it is not in.
  #holder(line) {
    const indent = /^ */.exec(line)[0].length;
    while (this.lists.length && indent < this.lists.at(-1).indent + 2) this.lists.pop();
    return this.lists.at(-1)?.item ?? this.root;
  }

  #heading([, signs, text], end) {
    this.#close();
    this.lists = [];
    // Levels are never left out, whatever the model does: who jumps from heading to heading finds each.
    this.level = Math.min(6, this.base + signs.length, this.level + 1);
    const element = this.#add(this.root, h(`h${this.level}`, { dir: "auto" }));
    this.leaf = { element, ranges: [[end - text.length, end - (/ +#+ *$/.exec(text)?.[0].length ?? 0)]] };
    this.#close();
  }

  #item([whole_, indent, sign], start, end) {
    this.#close();
    this.table = null;
    const at = indent.length;
    const type = /\d/.test(sign) ? "ol" : "ul";
    while (this.lists.length && at < this.lists.at(-1).indent) this.lists.pop();
    let list = this.lists.at(-1);
    if (list && at < list.indent + 2 && list.type !== type) {
      this.lists.pop();
      list = null;
    }
    if (!list || at >= list.indent + 2) {
      const first = Number.parseInt(sign, 10);
      const element = h(type, { start: type === "ol" && first !== 1 ? first : null });
      this.#add(this.lists.at(-1)?.item ?? this.root, element);
      list = { indent: at, type, element, item: null };
      this.lists.push(list);
    }
    list.item = this.#add(list.element, h("li", { dir: "auto" }));
    this.leaf = { element: this.#add(list.item, h("div", { class: "item" })), ranges: [[start + whole_.length, end]] };
  }

  #openCode([, indent, fence, language], line) {
    this.#close();
    this.table = null;
    const element = h("code", {});
    const pre = h("pre", { tabindex: "0", role: "region", "aria-label": language ? `Code, ${language.trim()}` : "Code" }, element);
    const head = h("div", { class: "code-head" }, h("span", {}, language.trim() || "code"), copyButton("Copy code", () => textOf(element), "Copy"));
    this.#add(this.#holder(line), h("div", { class: "code", dir: "ltr" }, head, pre));
    this.end = element;
    this.code = { fence, indent: indent.length, element };
  }

  #codeLine(line, start, end) {
    const { fence, indent, element } = this.code;
    const closing = FENCE.exec(line);
    if (closing && closing[2].startsWith(fence) && !closing[3].trim()) {
      this.code = null;
      return;
    }
    const skipped = Math.min(indent, /^ */.exec(line)[0].length);
    const before = element.childNodes.length;
    this.last = appendPlain(element, this.source, this.objects, start + skipped, end);
    if (!this.added.some((one) => one.contains(element))) this.added.push(...[...element.childNodes].slice(before));
    this.end = element;
  }

  #isDelimiters(line) {
    const { leaf } = this;
    if (!leaf || leaf.ranges.length !== 1 || !line.includes("-") || !DELIMITERS.test(line)) return false;
    const [[start, end]] = leaf.ranges;
    const head = this.source.slice(start, end);
    return head.includes("|") && cellsOf(head).length === cellsOf(line).length;
  }

  #openTable() {
    const { element, ranges: [[start, end]] } = this.leaf;
    const parent = element.parentNode;
    this.leaf = null;
    this.added = this.added.filter((one) => one !== element);
    element.remove();
    const [head, body] = [h("thead"), h("tbody")];
    this.#add(parent, h("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": "Table" }, h("table", {}, head, body)));
    this.#row(head, "th", start, end);
    this.table = body;
  }

  #row(parent, tag, start, end) {
    const row = this.#add(parent, h("tr"));
    for (const [from, to] of cellsOf(this.source.slice(start, end))) {
      const cell = h(tag, { scope: tag === "th" ? "col" : null, dir: "auto" });
      row.append(cell);
      appendInline(cell, this.source, this.objects, start + from, start + to);
      this.end = cell;  // but spaces at a cell's end are not written, so text is never just added
    }
  }

  // Write the leaf's text: its lines, and `more`.
  #close(more = "", isPlain = false) {
    const { leaf } = this;
    if (!leaf) return;
    this.leaf = null;
    const objects = new Map();
    let text = "";
    for (const [start, end] of leaf.ranges) {
      if (text || start !== leaf.ranges[0][0]) text += "\n";
      for (const [place, one] of this.objects) if (place >= start && place < end) objects.set(text.length + place - start, one);
      text += this.source.slice(start, end);
    }
    text += more;
    this.last = isPlain ? appendPlain(leaf.element, text, objects, 0, text.length) : appendInline(leaf.element, text, objects);
    this.end = leaf.element;
  }
}

// Where each cell of a table's line begins and ends.
function cellsOf(line) {
  const cells = [];
  let from = /^ *\|?/.exec(line)[0].length;
  const most = line.trimEnd().replace(/(?<!\\)\|$/, "").length;
  for (let i = from; i <= most; i += 1) {
    if (i < most && (line[i] !== "|" || line[i - 1] === "\\")) continue;
    cells.push([from, i]);
    from = i + 1;
  }
  return cells.map(([start, end]) => {
    const text = line.slice(start, end);
    return [start + (text.length - text.trimStart().length), Math.max(start + (text.length - text.trimStart().length), start + text.trimEnd().length)];
  });
}

// The text of code, without the signs of marks.
function textOf(code) {
  return [...code.childNodes].map((one) => (one.nodeType === Node.TEXT_NODE ? one.data : one.querySelector(".covered")?.textContent ?? "")).join("");
}

// The end of the last whole word of the first `most` characters, with the white space behind it.
function wordEnd(text, most) {
  const last = /\s(?=\S*$)/.exec(text.slice(0, most));
  return last && last.index > most / 2 ? last.index + 1 : whole(text, most);
}

// A place in `text` at which no character is cut in two.
function whole(text, place) {
  return place < text.length && /[\ud800-\udbff]/.test(text[place - 1]) ? place + 1 : place;
}
