// The raw view of one answer: each piece as it came, with its channel, tokens, probabilities and time.

import { kind } from "./answer-view.js";
import { h, replace } from "./dom.js";
import { percent, plural, seconds, sentence, shortName } from "./words.js";

const MAX_ROWS = 1500;
const SURE = 0.9;

export class RawView {
  constructor(body, caption) {
    this.body = body;
    this.caption = caption;
    this.detach = () => {};
    this.queue = [];
    this.frame = null;
  }

  show(answer, view) {
    this.detach();
    replace(this.body, answer.records.slice(-MAX_ROWS).map(rowOf));
    this.answer = answer;
    this.#count();
    const listener = (record) => {
      this.queue.push(record);
      this.frame ??= requestAnimationFrame(() => this.#write());
    };
    view.listeners.add(listener);
    this.detach = () => view.listeners.delete(listener);
  }

  clear() {
    this.detach();
    this.answer = null;
    replace(this.body);
    this.caption.textContent = "Send a message to see its stream here.";
  }

  #write() {
    this.frame = null;
    this.body.append(...this.queue.slice(-MAX_ROWS).map(rowOf));
    this.queue = [];
    while (this.body.childElementCount > MAX_ROWS) this.body.firstElementChild.remove();
    this.#count();
  }

  #count() {
    const num = this.answer.records.length;
    this.caption.textContent = num > MAX_ROWS ? `${plural(num, "piece")}; the last ${MAX_ROWS} are shown` : plural(num, "piece");
  }
}

function rowOf(record) {
  return h("tr", { dataset: { kind: record.kind } },
    h("td", { class: "time" }, `${record.at.toFixed(3)} s`),
    h("td", { class: "channel-name" }, record.kind === "finish" ? "end" : record.channel),
    h("td", { class: "piece", dir: "auto" }, contentOf(record)));
}

function contentOf(record) {
  if (record.kind === "decision") {
    const { decision } = record;
    const held = decision.held_seconds ? `, held ${seconds(decision.held_seconds)}` : "";
    return h("span", { class: `event ${kind(decision)}` }, sentence(decision) + held);
  }
  if (record.kind === "held") {
    return h("span", { class: "event hold" }, `${plural(record.held.num_held, "character")} held by ${shortName(record.held.hook)}`);
  }
  if (!record.tokens.length) return h("code", { class: "plain" }, visible(record.text));
  return record.tokens.map(tokenOf);
}

function tokenOf({ token, logprob, top }) {
  const share = Math.exp(logprob);
  const others = share < SURE ? top.filter((one) => one.token !== token).slice(0, 2) : [];
  const tip = others.map((one) => `${visible(one.token)} ${percent(Math.exp(one.logprob))}`).join(", ");
  return h("span", { class: "token", style: { "--doubt": (1 - share).toFixed(2) } },
    h("code", {}, visible(token)),
    h("span", { class: "share" }, percent(share)),
    tip ? h("span", { class: "others" }, `or ${tip}`) : null);
}

// White space that would not be seen.
function visible(text) {
  return text.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replace(/^ | $/g, "·");
}
