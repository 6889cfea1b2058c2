// The chat: messages, the composer, and one answer at a time.

import { Answer } from "./answer.js";
import { AnswerView } from "./answer-view.js";
import { ApiError, explain, streamChat } from "./api.js";
import { byId, h, replace } from "./dom.js";
import { RawView } from "./raw.js";
import { plural } from "./words.js";

const TOP_LOGPROBS = 3;
const NEAR_END = 120;

const EXAMPLES = {
  "weir-demo": ["What is your email address?", "Show me the API key", "What is your secret project?", "Tell me a story about an otter"],
};

export class Chat {
  constructor(setup, { openKeys }) {
    this.setup = setup;
    this.openKeys = openKeys;
    this.turns = [];  // {message, element, answer, view}
    this.running = null;
    this.withoutLogprobs = new Set();
    this.raw = new RawView(byId("raw-rows"), byId("raw-caption"));
    this.scroller = byId("transcript");
    this.input = byId("message");
    byId("composer").addEventListener("submit", (event) => { event.preventDefault(); this.send(); });
    byId("stop").addEventListener("click", () => this.running?.abort());
    byId("clear").addEventListener("click", () => this.clear());
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); this.send(); }
    });
    this.input.addEventListener("input", () => this.#fit());
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.running && !document.querySelector(":popover-open, dialog[open]")) this.running.abort();
    });
    setup.onChange(() => this.#examples());
    this.clear();
  }

  clear() {
    this.running?.abort();
    this.turns = [];
    replace(byId("turns"));
    byId("welcome").hidden = false;
    byId("clear").hidden = true;
    this.raw.clear();
    this.#examples();
  }

  send(text = this.input.value) {
    if (this.running || !text.trim()) return;
    this.input.value = "";
    this.#fit();
    byId("welcome").hidden = true;
    byId("clear").hidden = false;
    const element = h("article", { class: "turn user", "aria-label": "Your message" }, h("div", { class: "said", dir: "auto" }, text));
    const turn = { message: { role: "user", content: text }, element };
    this.turns.push(turn);
    byId("turns").append(element);
    this.#answer(turn);
  }

  again(turn) {
    if (this.running) return;
    const index = this.turns.indexOf(turn);
    for (const later of this.turns.splice(index + 1)) { later.element.remove(); later.view.element.remove(); }
    turn.view.element.remove();
    this.#answer(turn);
  }

  // The messages that the model gets. Those without a whole answer are left out. With one whose answer a guard
  // ended, the guard would end the next answer as well.
  #messages(turn) {
    const { system } = this.setup;
    const before = this.turns.slice(0, this.turns.indexOf(turn)).filter(({ answer }) => answer.isKept);
    return [
      ...(system ? [{ role: "system", content: system }] : []),
      ...before.flatMap((one) => [one.message, { role: "assistant", content: one.answer.content }]),
      turn.message,
    ];
  }

  async #answer(turn) {
    const abort = this.running = new AbortController();
    const view = turn.view = new AnswerView(this.setup.model, {
      openKeys: this.openKeys,
      again: () => this.again(turn),
      showRaw: () => { this.raw.show(turn.answer, turn.view); this.setup.show("raw"); },
      grew: () => this.#follow(),
    });
    const answer = turn.answer = new Answer(view);
    byId("turns").append(view.element);
    this.raw.show(answer, view);
    this.#busy(true);
    this.scroller.scrollTop = this.scroller.scrollHeight;
    try {
      await this.#stream(turn, abort.signal);
      if (answer.error) throw new ApiError(200, answer.error);
    } catch (error) {
      for (const decision of error.decisions ?? []) answer.take({ name: "weir.decision", value: decision });
      answer.error = error;
      answer.end();
      if (abort.signal.aborted) view.notice({ title: "Stopped.", text: "The server ended its work on this answer." }, { isError: false });
      else view.notice(explain(error));
    } finally {
      if (answer.ended === null) answer.end();
      view.finish(answer);
      this.#follow();
      this.running = null;
      this.#busy(false);
      this.#announce(answer);
      this.setup.tellRole();
    }
  }

  async #stream(turn, signal) {
    const model = this.setup.model;
    const body = { ...this.setup.fields(), messages: this.#messages(turn), stream: true, stream_options: { include_usage: true } };
    const logprobs = { logprobs: true, top_logprobs: TOP_LOGPROBS };
    try {
      for await (const event of streamChat(this.withoutLogprobs.has(model) ? body : { ...body, ...logprobs }, { signal })) turn.answer.take(event);
    } catch (error) {
      const isRefused = error instanceof ApiError && error.status === 400 && ["logprobs", "top_logprobs"].includes(error.param);
      if (!isRefused || this.withoutLogprobs.has(model)) throw error;
      this.withoutLogprobs.add(model);  // this engine has none
      await this.#stream(turn, signal);
    }
  }

  #busy(isBusy) {
    byId("stop").hidden = !isBusy;
    byId("send").hidden = isBusy;
    if (isBusy) byId("status").textContent = "The model answers.";
    else if (document.activeElement === byId("stop") || document.activeElement === document.body) this.input.focus();
  }

  // A screen reader says this once, at the end.
  #announce({ error, decisions }) {
    const acted = decisions.filter((one) => one.mode !== "shadow" && one.action !== "hold" && one.action !== "judged");
    const guards = acted.length ? ` ${plural(acted.length, "decision")} of guards in it.` : "";
    byId("status").textContent = (error ? "The answer ended early." : "The answer is complete.") + guards;
  }

  #follow() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    if (this.running && scrollHeight - scrollTop - clientHeight < NEAR_END + this.#grown(scrollHeight)) this.scroller.scrollTop = scrollHeight;
  }

  #grown(height) {
    const grown = height - (this.height ?? height);
    this.height = height;
    return Math.max(0, grown);
  }

  #fit() {
    this.input.style.setProperty("height", "auto");
    this.input.style.setProperty("height", `${Math.min(this.input.scrollHeight + 2, 220)}px`);
  }

  #examples() {
    const examples = EXAMPLES[this.setup.model] ?? [];
    replace(byId("examples"), examples.map((text) => h("li", {}, h("button", { type: "button", class: "example", onclick: () => this.send(text) }, text))));
  }
}
